"""What the kernels of this package share: a signature of each task, and its fit."""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import TaskKernel
from metaforge.tasks import TaskBatch
from metaforge_kernels.contrast import Contrast
from metaforge_kernels.embeddings import Embedding
from metaforge_kernels.options import SignatureOptions


class SignatureKernel(TaskKernel, ABC):
    """A kernel on the vectors that ``Embedding`` or ``Contrast`` makes of tasks."""

    def __init__(self, options: SignatureOptions, context: Context | None = None):
        super().__init__(options, context)
        self.reads = options.signature
        made = Contrast if options.embedding == "contrast" else Embedding
        self.embedding = made(options, self.name)

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        self.embedding.fit(sample, generator)

    def signature(self, tasks: TaskBatch) -> Tensor:
        return self.embedding(tasks)

    def describe(self) -> dict[str, Any]:
        return self.options.in_force()
