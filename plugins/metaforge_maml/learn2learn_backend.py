"""MAML by learn2learn's own ``algorithms.MAML``, for any ``nn.Module``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch
from metaforge_maml import peer
from metaforge_maml.backend import InnerLoop, Rows, TaskwiseBackend


class Learn2learnBackend(TaskwiseBackend):
    """learn2learn clones the module, adapts the clone and predicts, task by task.

    Its learner owns its parameters; ``functional_call`` lends it theta for one task, so that
    the clone's graph leads back to theta.
    """

    implementation = "learn2learn"

    def __init__(self, module: nn.Module, loop: InnerLoop, transductive: bool = False):
        super().__init__(module, loop, transductive)
        self.task = _Task(module, loop)

    def adapt(self, params: Params, support: TaskBatch) -> Params:
        tasks = [self._run(params, rows, rows.x)[0] for rows in self.support_rows(support)]
        return {name: torch.stack([task[name] for task in tasks]) for name in params}

    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        pairs = zip(self.support_rows(support), query_x, strict=True)
        return torch.stack([self._run(params, rows, x)[1] for rows, x in pairs])

    def losses(self, params: Params, tasks: TaskBatch) -> Tensor:
        pairs = zip(self.support_rows(tasks), self.query_rows(tasks), strict=True)
        return torch.stack([query.loss(self._run(params, s, query.x)[1]) for s, query in pairs])

    def _run(self, params: Params, support: Rows, query_x: Tensor) -> tuple[Params, Tensor]:
        """One task's adapted parameters and its outputs [Q, o]."""
        keep_graph = torch.is_grad_enabled()
        lent = {
            f"learner.module.{name}": value
            if keep_graph and value.requires_grad
            else value.detach().requires_grad_()
            for name, value in params.items()
        }
        with torch.enable_grad():  # learn2learn differentiates the support loss itself
            second_order = self.loop.second_order and keep_graph
            adapted, outputs = functional_call(self.task, lent, (support, query_x, second_order))
        if keep_graph:
            return adapted, outputs
        return {name: value.detach() for name, value in adapted.items()}, outputs.detach()


class _Task(nn.Module):
    """One task, as learn2learn's documentation writes it: clone, adapt, predict."""

    def __init__(self, module: nn.Module, loop: InnerLoop):
        super().__init__()
        maml = peer.algorithms().MAML
        self.steps = loop.steps
        # allow_nograd and allow_unused let it pass over parameters that are held constant
        self.learner = maml(module, lr=loop.lr, allow_nograd=True, allow_unused=True)

    def forward(self, support: Rows, query_x: Tensor, second_order: bool) -> tuple[Params, Tensor]:
        learner = self.learner.clone(first_order=not second_order)
        for _ in range(self.steps):
            learner.adapt(support.loss(learner(support.x)))
        return dict(learner.module.named_parameters()), learner(query_x)
