"""What every implementation of MAML does, and what it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn
from torch.func import functional_call

from metaforge import losses
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch
from metaforge.taskwise import Rows, query_rows, support_rows


@dataclass(frozen=True)
class InnerLoop:
    """theta_{t+1} = theta_t - lr * grad L(theta_t, D^tr), ``steps`` times.

    ``second_order`` false holds the gradients constant in the outer derivative. ``forward``
    gives what surrounds every call of the module (``metaforge.precision.forward_pass``).
    """

    steps: int
    lr: float
    second_order: bool
    support_chunk: int | None = None
    forward: Callable[[], AbstractContextManager[object]] = nullcontext


class Backend(ABC):
    """MAML for one module. theta comes from outside, named as ``module.named_parameters()``;
    the module gives the computation, the buffers and what is held constant.

    Differentiable in theta where gradients are enabled; without, no graph is kept.
    """

    implementation: str
    vmappable = False

    def __init__(self, module: nn.Module, loop: InnerLoop):
        self.module, self.loop = module, loop

    def call(self, params: Params, x: Tensor) -> Tensor:
        """The module's outputs with these parameters, in their precision."""
        with self.loop.forward():
            outputs = functional_call(self.module, params, (x,))
        return outputs.to(next(iter(params.values())).dtype)

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
    """

    def __init__(self, module: nn.Module, loop: InnerLoop, transductive: bool = False):
        super().__init__(module, loop)
        self.transductive = transductive

    def support_rows(self, tasks: TaskBatch) -> list[Rows]:
        return support_rows(tasks, self.transductive)

    def query_rows(self, tasks: TaskBatch) -> list[Rows]:
        return query_rows(tasks, self.transductive)
