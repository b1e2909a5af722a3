"""The Gaussian kernel on task signatures."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.options import GaussianOptions
from metaforge_kernels.signatures import SignatureKernel


class Gaussian(SignatureKernel):
    """``k(D, D') = exp(-gamma |s(D) - s(D')|^2)`` (paper, section 4.2).

    The width is given in one of three ways:

    * ``gamma``, the multiplier (the paper's program has 50, for means of L2-normalised
      features);
    * ``sigma``: ``gamma = 1 / sigma^2``, the paper's notation, without the factor 2 of
      a normal density;
    * ``bandwidth: median``, the default: ``gamma = scale / median |s - s'|^2``, the (lower)
      median taken over pairs of distinct signatures of at most 1000 bank tasks. ``scale: 1``
      is the usual median heuristic; a larger one is sharper.

    Raises ``NumericError`` from ``fit`` where all signatures are equal, and ``DataError`` where
    one is not finite.
    """

    name = "gaussian"

    def __init__(self, options: GaussianOptions, context: Context | None = None):
        super().__init__(options, context)
        self._gamma = options.fixed_gamma

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        super().fit(sample, generator)
        if self.options.by_median:
            median = self.median_squared_distance(sample)
            self._gamma = self.options.scale / median

    @property
    def gamma(self) -> float:
        if self._gamma is None:
            raise PluginError(
                f"task kernel {self.name!r}: its median bandwidth is known after "
                "fit(sample, generator)"
            )
        return self._gamma

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return self.space.squared_distances(a, b).mul_(-self.gamma).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))

    def state(self) -> dict[str, float | str]:
        return {"gamma": self.gamma} | super().state()
