"""The signature of a recipe that names none."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from metaforge.tasks import TaskBatch
from metaforge_kernels.contrast import Contrast, NothingApart
from metaforge_kernels.embeddings import Embedding
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions

#: Features of more numbers cost contrast minutes, and as much memory as their square.
_WIDEST = 2048


class Auto(SignatureMap):
    """Signatures ``[B, p]`` in float64: ``joint`` for regression, else ``contrast`` or ``mean``.

    ``contrast`` tells sources and groups apart where ``mean`` blurs them, and is no worse where
    there are none. It is taken where a width is fitted to it (one in numbers is meant for the
    paper's means), where signatures read supports alone, bank tasks have queries to learn from,
    and features at most 2048 numbers. If it finds nothing that tells bank tasks apart, it is
    ``mean`` too. The choice is recorded.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        super().__init__(options, kernel_name)
        self._map: SignatureMap | None = None
        self._taken: Literal["joint", "contrast", "mean"] | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Choose by a sample of bank tasks, and fit what is chosen."""
        self._taken = self._suited(sample)
        if self._taken == "contrast":
            self._map = Contrast(self.options, self.kernel_name)
            try:
                self._map.fit(sample, generator)
                return
            except NothingApart:
                self._taken = "mean"
        self._map = Embedding(self.options, self.kernel_name, self._taken)
        self._map.fit(sample, generator)

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self._map is not None:
            return self._map(tasks)
        if self.options.may_learn or tasks.is_regression:
            raise self.unfitted("auto")
        return Embedding(self.options, self.kernel_name, "mean")(tasks)  # needs no fit

    def state(self) -> dict[str, float | str]:
        return {"embedding": self._taken} if self._taken else {}

    def _suited(self, sample: TaskBatch) -> Literal["joint", "contrast", "mean"]:
        if sample.is_regression:
            return "joint"
        width = sample.support_x[0, 0].numel()
        learnable = sample.query_x is not None and width <= _WIDEST
        return "contrast" if learnable and self.options.may_learn else "mean"
