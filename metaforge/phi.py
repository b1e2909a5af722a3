"""What a kernel looks at of a sample: the data's features, or those that theta_hat has learned.

Symbols: B tasks, S support and Q query rows, w the width of phi(x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metaforge.contracts import InnerAlgorithm, Params, TaskKernel, TaskWeighting
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape, View

#: Rows put through the learner at a time, to bound what its layers hold.
_ROWS = 2048


class DataPhi:
    """The data's own features, as its task source gives them."""

    #: The view of the tasks that phi is taken of.
    view: View = "features"

    def __call__(self, tasks: TaskBatch) -> TaskBatch:
        return tasks


@dataclass(frozen=True)
class LearnedPhi(DataPhi):
    """``InnerAlgorithm.features`` at theta_hat, of the inputs that the learner sees."""

    inner: InnerAlgorithm
    theta: Params
    view = "input"

    def __call__(self, tasks: TaskBatch) -> TaskBatch:
        """The tasks with support_x [B, S, w] and query_x [B, Q, w]."""
        query_x = tasks.query_x if tasks.query_x is None else self._of(tasks.query_x)
        return replace(tasks, support_x=self._of(tasks.support_x), query_x=query_x)

    @torch.no_grad()
    def _of(self, x: Tensor) -> Tensor:
        parts = [self.inner.features(self.theta, rows) for rows in x.flatten(0, 1).split(_ROWS)]
        return torch.cat([part for part in parts if part is not None]).unflatten(0, x.shape[:2])


def refuse_unready(
    kernel: TaskKernel,
    weighting: TaskWeighting,
    inner: InnerAlgorithm,
    theta: Params,
    shape: TaskShape,
) -> None:
    """Raise ``PluginError`` where a kernel reads features of theta_hat that there are none of."""
    if kernel.phi == "data":
        return
    if weighting.learned:
        raise PluginError(
            f"task kernel {kernel.name!r}: phi: theta_hat looks through what phase 1 has learned, "
            "and the weighting is learned in phase 1, beside it: take phi: data"
        )
    like = next(iter(theta.values()))
    if inner.features(theta, like.new_zeros(1, *shape.input_shape)) is None:
        raise PluginError(
            f"task kernel {kernel.name!r}: phi: theta_hat reads the features of the inner "
            f"algorithm, and {type(inner).__name__} has none of a single sample (it has no layer "
            "before its last, or sees the statistics of its batch); take phi: data"
        )
