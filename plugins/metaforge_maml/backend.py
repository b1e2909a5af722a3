"""What every implementation of MAML does, and what it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from metaforge import losses
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch


@dataclass(frozen=True)
class InnerLoop:
    """theta_{t+1} = theta_t - lr * grad L(theta_t, D^tr), ``steps`` times.

    ``second_order`` false holds the gradients constant in the outer derivative.
    """

    steps: int
    lr: float
    second_order: bool
    support_chunk: int | None = None


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


class Backend(ABC):
    """MAML for one module. theta comes from outside, named as ``module.named_parameters()``;
    the module gives the computation, the buffers and what is held constant.

    Differentiable in theta where gradients are enabled; without, no graph is kept.
    """

    implementation: str
    vmappable = False

    def __init__(self, module: nn.Module, loop: InnerLoop):
        self.module, self.loop = module, loop

    @abstractmethod
    def adapt(self, params: Params, support: TaskBatch) -> Params:
        """``{name: [B, *shape]}``: each task's adapted parameters."""

    @abstractmethod
    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        """[B, Q, o]: the adapted predictors' outputs on ``query_x`` [B, Q, *x]."""

    def losses(self, params: Params, tasks: TaskBatch) -> Tensor:
        """[B]: each task's mean loss over its queries, after adaptation."""
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        outputs = self.outputs(params, tasks, tasks.query_x)
        return losses.task_losses(outputs, tasks.query_y, tasks.query_mask)


class TaskwiseBackend(Backend):
    """One that takes tasks one by one, so that it serves any module.

    With ``transductive``, padding rows are cut away: they would enter the batch's statistics.
    (Cutting reads the mask, which stalls a GPU; other modules are spared that.)
    """

    def __init__(self, module: nn.Module, loop: InnerLoop, transductive: bool = False):
        super().__init__(module, loop)
        self.transductive = transductive

    def support_rows(self, tasks: TaskBatch) -> list[Rows]:
        x, y, mask = tasks.support_x, tasks.support_y, tasks.support_mask
        return _rows(x, y, mask, self.transductive)

    def query_rows(self, tasks: TaskBatch) -> list[Rows]:
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        return _rows(tasks.query_x, tasks.query_y, tasks.query_mask, self.transductive)
