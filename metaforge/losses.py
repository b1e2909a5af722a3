"""Losses and scores of a batch of tasks, aware of padding."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from metaforge.tasks import TaskBatch


def per_sample(outputs: Tensor, y: Tensor) -> Tensor:
    """[B, n] losses of outputs [B, n, o]: cross-entropy on class ids y [B, n], or the
    mean squared error over the last axis of real y [B, n, o]."""
    if y.is_floating_point():
        return (outputs - y).square().mean(-1)
    return F.cross_entropy(outputs.mT, y, reduction="none")


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """[B] means of values [B, n] over the samples that the mask keeps."""
    return (values * mask).sum(1) / mask.sum(1)


def task_losses(outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """[B]: L of the paper's eq. 3, the mean loss over a task's samples."""
    return masked_mean(per_sample(outputs, y), mask)


def scores(outputs: Tensor, tasks: TaskBatch) -> Tensor:
    """[B] float64: each task's score on its queries: accuracy (micro: every query counts
    once) for classification, mean squared error for regression.

    In float64, so that equal counts give equal scores and paired differences that tie do tie.
    """
    y = tasks.query_y
    assert y is not None
    values = per_sample(outputs, y) if tasks.is_regression else (outputs.argmax(-1) == y)
    return masked_mean(values.double(), tasks.query_mask.double())


def macro_accuracy(outputs: Tensor, tasks: TaskBatch) -> Tensor:
    """[B] float64: accuracy averaged over the classes that a task's queries hold."""
    y = tasks.query_y
    assert y is not None
    mask = tasks.query_mask.double()
    one_hot = F.one_hot(y, tasks.outputs).to(mask.dtype) * mask[..., None]
    hits = (outputs.argmax(-1) == y).to(mask.dtype)[..., None]
    counts = one_hot.sum(1)
    recall = (one_hot * hits).sum(1) / counts.clamp(min=1)
    return recall.sum(1) / (counts > 0).sum(1)
