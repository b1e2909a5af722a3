"""Inner algorithms that take tasks one by one, so that they serve any module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from metaforge import losses, modules
from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape

#: Decorates what differentiates twice: the fused kernels of attention have no second
#: derivative, PyTorch's plain formula has.
plain_attention = sdpa_kernel(SDPBackend.MATH)


@dataclass(frozen=True)
class Rows:
    """One task's support or query: x [n, *x], y [1, n] or [1, n, d], and weight [1, n], each
    row's share of the mean loss (1/n; 0 for padding)."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def loss(self, outputs: Tensor) -> Tensor:
        """A scalar: the share of these rows in the mean loss of outputs [n, o]."""
        return (losses.per_sample(outputs[None], self.y) * self.weight).sum()

    def chunks(self, size: int | None) -> Iterator[Rows]:
        n = len(self.x)
        for start in range(0, n, size or n):
            rows = slice(start, start + (size or n))
            yield Rows(self.x[rows], self.y[:, rows], self.weight[:, rows])


def support_rows(tasks: TaskBatch, trim: bool) -> list[Rows]:
    """Each task's support. ``trim`` cuts padding rows away, as a module that sees the
    statistics of its batch needs. (It reads the mask, which stalls a GPU.)"""
    return _rows(tasks.support_x, tasks.support_y, tasks.support_mask, trim)


def query_rows(tasks: TaskBatch, trim: bool) -> list[Rows]:
    """Each task's queries, as ``support_rows``."""
    assert tasks.query_x is not None
    assert tasks.query_y is not None
    return _rows(tasks.query_x, tasks.query_y, tasks.query_mask, trim)


def _rows(x: Tensor, y: Tensor, mask: Tensor, trim: bool) -> list[Rows]:
    weight = mask / mask.sum(1, keepdim=True)
    tasks = [Rows(x[b], y[b : b + 1], weight[b : b + 1]) for b in range(len(x))]
    if not trim:
        return tasks
    kept = [kept.nonzero().flatten() for kept in mask > 0]
    return [
        Rows(task.x[keep], task.y[:, keep], task.weight[:, keep])
        for task, keep in zip(tasks, kept, strict=True)
    ]


def task_losses(
    loss: Callable[[Params, Rows, Rows], Tensor], params: Params, tasks: TaskBatch, trim: bool
) -> Tensor:
    """[B]: ``loss(theta, support, query)`` of each task, differentiable in theta once.

    Each task's gradient is taken at once, so its graph is freed before the next is built, as
    in a hand-written loop that calls ``backward`` task by task; what is kept is a gradient a
    task. Inputs that require gradients (of a backbone that learns) get the plain graph.
    """
    pairs = list(zip(support_rows(tasks, trim), query_rows(tasks, trim), strict=True))
    inputs_learn = any(s.x.requires_grad or q.x.requires_grad for s, q in pairs)
    if not torch.is_grad_enabled() or inputs_learn:
        return torch.stack([loss(params, support, query) for support, query in pairs])

    def of(values: tuple[Tensor, ...], b: int) -> Tensor:
        return loss(dict(zip(params, values, strict=True)), *pairs[b])

    return _TaskByTask.apply(of, len(pairs), *params.values())


class _TaskByTask(torch.autograd.Function):
    """[B] losses of tasks, each with its gradient in theta taken at once."""

    @staticmethod
    def forward(
        ctx: Any, loss: Callable[[tuple[Tensor, ...], int], Tensor], n_tasks: int, *theta: Tensor
    ) -> Tensor:
        learned = [i for i, value in enumerate(theta) if value.requires_grad]
        ctx.gradients, values = [], []
        for b in range(n_tasks):
            leaves = tuple(value.detach().requires_grad_(value.requires_grad) for value in theta)
            with torch.enable_grad():
                value = loss(leaves, b)
            if learned:
                # 0 where the loss does not depend on one, such as a learning rate at 0 steps
                found = torch.autograd.grad(
                    value, [leaves[i] for i in learned], materialize_grads=True
                )
                ctx.gradients.append(found)
            values.append(value.detach())
        ctx.positions = [i + 2 for i in learned]
        ctx.arguments = len(theta) + 2
        return torch.stack(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [None] * ctx.arguments
        for position, each in zip(ctx.positions, zip(*ctx.gradients, strict=True), strict=True):
            gradients[position] = torch.tensordot(outer[0], torch.stack(each), 1)
        return tuple(gradients)


class Taskwise(InnerAlgorithm):
    """An inner algorithm that adapts one module's parameters, task by task.

    A subclass has a ``name`` for errors and ``steps``; its ``init`` calls ``begin``; and it
    says in ``run`` what happens to one task. Padding weighs nothing in a task's loss, and is
    cut away for a module that uses the statistics of its batch.
    """

    has_inner_loop = True
    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    name: ClassVar[str]
    steps: int
    shape: TaskShape | None = None
    module: nn.Module

    def begin(self, module: nn.Module, shape: TaskShape, transductive: bool) -> None:
        """Fix the module that adapts and the tasks' shape."""
        self.module, self.shape, self.transductive = module, shape, transductive

    @abstractmethod
    def run(
        self, params: Params, support: Rows, query_x: Tensor, steps: int
    ) -> tuple[Params, Tensor]:
        """One task: theta after ``steps`` steps, named as theta is, and its outputs [Q, o].

        Differentiable in theta where gradients are enabled; without, no graph is kept.
        """

    @plain_attention
    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        """``{name: [B, *shape]}``: theta_T of each task."""
        rows = self._rows(support)
        states = [self.run(params, task, task.x, self.steps)[0] for task in rows]
        return {name: torch.stack([state[name] for state in states]) for name in params}

    @plain_attention
    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        modules.refuse_other_tasks(self.shape, tasks, self.name)

        def loss(theta: Params, support: Rows, query: Rows) -> Tensor:
            return query.loss(self.run(theta, support, query.x, self.steps)[1])

        return task_losses(loss, params, tasks, self.transductive)

    @plain_attention
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        pairs = zip(self._rows(support), query_x, strict=True)
        return torch.stack([self.run(params, rows, x, self.steps)[1] for rows, x in pairs])

    def features(self, params: Params, x: Tensor) -> Tensor | None:
        """[n, w]: what the module's last affine layer sees, at theta itself, not adapted."""
        return None if self.transductive else modules.features(self.module, params, x)

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        if len(support) != 1:
            raise PluginError(
                f"{self.name}: export takes one task; found a batch of {len(support)}"
            )
        return modules.with_values(self.module, self.adapt(params, support))

    @torch.no_grad()
    @plain_attention
    def diagnose(self, params: Params, tasks: TaskBatch, *, noise: Tree = None) -> str | None:
        pairs = zip(self._rows(tasks), query_rows(tasks, self.transductive), strict=True)
        for support, query in pairs:
            for step in range(self.steps + 1):
                state, outputs = self.run(params, support, support.x, step)
                for name, value in state.items():
                    if not value.isfinite().all():
                        return f"inner step {step}, tensor {name!r}"
                if not support.loss(outputs).isfinite():
                    return f"inner step {step}, tensor 'support loss'"
            _, outputs = self.run(params, support, query.x, self.steps)
            if not query.loss(outputs).isfinite():
                return f"inner step {self.steps}, tensor 'query loss'"
        return None

    def _rows(self, support: TaskBatch) -> list[Rows]:
        modules.refuse_other_tasks(self.shape, support, self.name)
        return support_rows(support, self.transductive)
