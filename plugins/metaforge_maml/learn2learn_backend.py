"""MAML by learn2learn's own ``algorithms.MAML``, for any ``nn.Module``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.taskwise import Rows, plain_attention
from metaforge_learn2learn import learner
from metaforge_learn2learn.options import Learn2learnOptions
from metaforge_maml.backend import InnerLoop, TaskwiseBackend


class Learn2learnBackend(TaskwiseBackend):
    """learn2learn clones the module, adapts the clone and predicts, task by task."""

    implementation = "learn2learn"

    def __init__(
        self, module: nn.Module, loop: InnerLoop, shape: TaskShape, transductive: bool = False
    ):
        super().__init__(module, loop, transductive)
        self.episode = learner.make(module, shape, Learn2learnOptions(lr=loop.lr))

    @plain_attention
    def adapt(self, params: Params, support: TaskBatch) -> Params:
        tasks = [self._run(params, rows, rows.x)[0] for rows in self.support_rows(support)]
        return {name: torch.stack([task[name] for task in tasks]) for name in params}

    @plain_attention
    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        pairs = zip(self.support_rows(support), query_x, strict=True)
        return torch.stack([self._run(params, rows, x)[1] for rows, x in pairs])

    @plain_attention
    def losses(self, params: Params, tasks: TaskBatch) -> Tensor:
        pairs = zip(self.support_rows(tasks), self.query_rows(tasks), strict=True)
        return torch.stack([query.loss(self._run(params, s, query.x)[1]) for s, query in pairs])

    def _run(self, params: Params, support: Rows, query_x: Tensor) -> tuple[Params, Tensor]:
        """One task's adapted parameters and its outputs [Q, o]."""
        loop = self.loop
        return self.episode.run(
            params, support, query_x, loop.steps, second_order=loop.second_order
        )
