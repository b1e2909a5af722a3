"""What made a step of an outer loop not finite, in words: the task, the inner step, the tensor.

Asked only once a step is known to be bad, so it may compute again, and read from the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch

_REMEDY = (
    "Lower the inner or the outer learning rate, or use on_nan: skip to leave such steps out and "
    "count them"
)


@dataclass(frozen=True)
class TaskLosses:
    """Losses [B] of tasks in training mode, and the noise that they were computed under."""

    values: Tensor
    tasks: TaskBatch
    noise: Tree = None

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.tasks),):
            raise PluginError(
                f"the inner algorithm's losses of {len(self.tasks)} tasks have shape "
                f"{list(self.values.shape)}; expected one loss a task, [{len(self.tasks)}]"
            )

    def detached(self) -> TaskLosses:
        return TaskLosses(self.values.detach(), self.tasks, self.noise)

    def each(self) -> Iterator[tuple[float, TaskBatch, Tree]]:
        """A task's loss, the task (B = 1) and its noise, one by one."""
        for b, value in enumerate(self.values.tolist()):
            yield value, self.tasks[[b]], noise_of(self.noise, [b])


def why_not_finite(
    inner: InnerAlgorithm,
    params: Params,
    value: Tensor,
    parts: tuple[TaskLosses, ...],
    gradients: Mapping[str, Tensor],
) -> str:
    """Why a step whose objective is ``value`` and whose outer gradients are ``gradients`` is
    not finite; ``parts`` are the losses that the objective is made of."""
    if bool(torch.isfinite(value)):
        return _bad_gradient(inner, params, parts, gradients)
    every = [task for part in parts for task in part.each()]
    bad = [(task, noise) for loss, task, noise in every if not _is_finite(loss)]
    if not bad:
        return (
            "every task's loss is finite but the objective is not; look at the regulariser and "
            "at the task weights"
        )
    task, noise = bad[0]
    place = inner.diagnose(params, task, noise=noise)
    return (
        f"the loss of task {int(task.task_ids[0])} is not finite{f' ({place})' if place else ''}; "
        f"{len(bad)} of {len(every)} tasks of the step are affected. {_REMEDY}"
    )


def _bad_gradient(
    inner: InnerAlgorithm,
    params: Params,
    parts: tuple[TaskLosses, ...],
    gradients: Mapping[str, Tensor],
) -> str:
    tensors = [name for name, gradient in gradients.items() if not _is_finite(gradient.norm())]
    every = [task for part in parts for task in part.each()]
    bad = [
        int(task.task_ids[0])
        for _, task, noise in every
        if not _has_finite_gradient(
            inner.losses(params, task, training=True, noise=noise).sum(), params
        )
    ]
    penalty = inner.penalty(params)
    if bad:
        share = f"{len(bad)} of {len(every)} tasks of the step are affected"
        culprit = f"it comes from task {bad[0]}; {share}"
    elif penalty is not None and not _has_finite_gradient(penalty, params):
        culprit = "it comes from the inner algorithm's penalty on theta, not from a task"
    else:
        culprit = "each task's own gradient is finite: look at the task weights"
    return (
        "the loss is finite but its gradient or its norm is not, in "
        f"{', '.join(tensors) or 'all tensors together'}; {culprit}. {_REMEDY}"
    )


def _has_finite_gradient(value: Tensor, params: Params) -> bool:
    if not value.requires_grad:
        return True
    found = torch.autograd.grad(value, list(params.values()), allow_unused=True)
    return all(gradient is None or _is_finite(gradient.norm()) for gradient in found)


def _is_finite(value: Tensor | float) -> bool:
    return bool(torch.isfinite(torch.as_tensor(value)))


def noise_of(tree: Tree, index: list[int] | slice) -> Any:
    """Some tasks' part of their noise: rows of every tensor in it."""
    if isinstance(tree, Mapping):
        return {name: noise_of(value, index) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return tuple(noise_of(value, index) for value in tree)
    return tree if tree is None else tree[index]
