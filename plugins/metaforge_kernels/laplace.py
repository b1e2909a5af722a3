"""The Laplace kernel on task signatures."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.options import LaplaceOptions
from metaforge_kernels.signatures import SignatureKernel


class Laplace(SignatureKernel):
    """``k(D, D') = exp(-|s(D) - s(D')| / sigma)``, d the Euclidean distance (paper, appendix C).

    Without ``sigma`` the width is the median heuristic, ``sigma = median |s - s'| / scale``,
    over pairs of distinct signatures of at most 1000 bank tasks.

    Raises ``NumericError`` from ``fit`` where all signatures are equal, and ``DataError`` where
    one is not finite.
    """

    name = "laplace"

    def __init__(self, options: LaplaceOptions, context: Context | None = None):
        super().__init__(options, context)
        self._sigma = options.sigma

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        super().fit(sample, generator)
        if self.options.by_median:
            median = self.median_squared_distance(sample) ** 0.5
            self._sigma = median / self.options.scale

    @property
    def sigma(self) -> float:
        if self._sigma is None:
            raise PluginError(
                f"task kernel {self.name!r}: its median bandwidth is known after "
                "fit(sample, generator)"
            )
        return self._sigma

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return self.space.squared_distances(a, b).sqrt_().div_(-self.sigma).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))

    def state(self) -> dict[str, float | str]:
        return {"sigma": self.sigma} | super().state()
