"""From a task to its signature: the base of every way."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.distances import Euclidean, Space
from metaforge_kernels.options import SignatureOptions


class SignatureMap(ABC):
    """Maps tasks to signatures ``[B, p]`` in float64, points of ``space``.

    ``fit`` sees a sample of bank tasks, queries and all; a call, what the kernel may read.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        self.options, self.kernel_name = options, kernel_name

    @abstractmethod
    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None: ...

    @abstractmethod
    def __call__(self, tasks: TaskBatch) -> Tensor: ...

    @property
    def space(self) -> Space:
        return Euclidean()

    def state(self) -> dict[str, float | str]:
        """What the fit found, for the run's record."""
        return {}

    def unfitted(self, embedding: str) -> PluginError:
        return PluginError(
            f"task kernel {self.kernel_name!r}: embedding: {embedding} has to be fitted on bank "
            "tasks before it gives signatures; call fit(sample, generator) first"
        )
