"""What the kernels of this package share: a signature of each task, and its fit."""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import TaskKernel
from metaforge.gram import signature
from metaforge.tasks import TaskBatch
from metaforge_kernels.auto import Auto
from metaforge_kernels.classes import Classes
from metaforge_kernels.contrast import Contrast
from metaforge_kernels.distances import Space, median_squared_distance
from metaforge_kernels.embeddings import Embedding
from metaforge_kernels.learned import Learned
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.sets import SampleSet


def signature_map(options: SignatureOptions, kernel_name: str) -> SignatureMap:
    """The map that ``options.embedding`` names."""
    match options.embedding:
        case "auto":
            return Auto(options, kernel_name)
        case "classes":
            return Classes(options, kernel_name)
        case "set":
            return SampleSet(options, kernel_name)
        case "contrast":
            return Contrast(options, kernel_name)
        case "learned":
            return Learned(options, kernel_name)
        case mean_of_samples:
            return Embedding(options, kernel_name, mean_of_samples)


class SignatureKernel(TaskKernel, ABC):
    """A kernel on the signatures that a ``SignatureMap`` makes of tasks."""

    def __init__(self, options: SignatureOptions, context: Context | None = None):
        super().__init__(options, context)
        self.reads, self.phi = options.signature, options.phi
        self.embedding = signature_map(options, self.name)

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        self.embedding.fit(sample, generator)

    def signature(self, tasks: TaskBatch) -> Tensor:
        return self.embedding(tasks)

    @property
    def space(self) -> Space:
        """Where signatures are points."""
        return self.embedding.space

    def median_squared_distance(self, sample: TaskBatch) -> float:
        """Over pairs of tasks, for a width; raises ``NumericError`` where all are equal."""
        return median_squared_distance(signature(sample, self), self.space, self.name)

    def describe(self) -> dict[str, Any]:
        return self.options.in_force()

    def state(self) -> dict[str, float | str]:
        return self.embedding.state()
