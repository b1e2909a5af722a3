"""A user's labelled samples as a target task: support rows alone, classes numbered, an id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.tasks import TaskBatch, TaskShape

#: Rows that a message names.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class OwnTask:
    """One task without queries.

    support   its samples as the learner sees them
    features  the same samples as the kernel sees the data's (``view="features"``); None where
              they are the learner's
    classes   labels in the order of the outputs; None in regression
    """

    support: TaskBatch
    features: TaskBatch | None
    classes: tuple[Any, ...] | None

    @property
    def task_id(self) -> int:
        return int(self.support.task_ids[0])


def own_task(
    x: Any,
    y: Any,
    shape: TaskShape,
    context: Context,
    *,
    features: Any = None,
    task_id: int | None = None,
) -> OwnTask:
    """The task of samples x [n, *x] as the learner sees them.

    y  class labels [n] (texts, whole numbers or others that can be sorted), or real targets [n]
       or [n, d] of a regression learner

    Rows are put class by class, classes by their sorted labels, the rows of a class as given.
    Without a ``task_id`` the task has a digest of all that is in it.

    Raises ``DataError`` for samples of another shape than the learner's, numbers that are not
    finite, labels that are missing, not one a row, or of one class alone.
    """
    rows = _samples("x", x, shape.input_shape, context)
    others = None if features is None else _samples("features", features, None, context)
    if others is not None and len(others) != len(rows):
        raise DataError(f"features has {len(others)} rows, but x has {len(rows)}")
    labels = _array("y", y)
    if len(labels) != len(rows) or not len(rows):
        raise DataError(f"y has {len(labels)} rows, x has {len(rows)}; expected one for each, some")
    if shape.kind == "regression":
        targets, classes = _real(labels, shape.outputs, context), None
        outputs = shape.outputs
    else:
        classes, order, numbers = _numbered(labels)
        rows = rows[order]
        others = others if others is None else others[order]
        targets, outputs = torch.from_numpy(numbers[order]).to(context.device), len(classes)
    number = _digest(rows, targets) if task_id is None else task_id
    ids = torch.tensor([number], device=context.device)

    def batch(samples: Tensor) -> TaskBatch:
        return TaskBatch(samples[None], targets[None], task_ids=ids, outputs=outputs)

    return OwnTask(batch(rows), None if others is None else batch(others), classes)


def _samples(name: str, x: Any, shape: tuple[int, ...] | None, context: Context) -> Tensor:
    given = _array(name, x)
    if given.dtype.kind not in "biuf":
        raise DataError(f"{name} has dtype {given.dtype}; expected numbers")
    if shape is not None and given.shape[1:] != shape:
        raise DataError(
            f"{name} has shape {list(given.shape)}; the learner takes samples of shape "
            f"[n, {', '.join(map(str, shape))}]"
        )
    found = torch.from_numpy(given.astype(context.dtype)).to(context.device)
    broken = ~torch.isfinite(found.flatten(1)).all(1)
    if bool(broken.any()):
        raise DataError(f"{name} is not finite in {_told(broken.nonzero()[:, 0].tolist())}")
    return found


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} does not make one array: {error}") from error
    if not found.ndim:
        raise DataError(f"{name} is {value!r}; expected an array with a row for each sample")
    return found


def _real(y: np.ndarray, outputs: int, context: Context) -> Tensor:
    """[n, d]"""
    columns = y[:, None] if y.ndim == 1 else y
    if y.dtype.kind not in "biuf" or columns.ndim != 2 or columns.shape[1] != outputs:
        raise DataError(
            f"y has shape {list(y.shape)} and dtype {y.dtype}; the learner is of regression: "
            f"expected {outputs} numbers a sample"
        )
    if len(broken := np.flatnonzero(~np.isfinite(columns).all(1))):
        raise DataError(f"y is not finite in {_told(broken.tolist())}")
    return torch.from_numpy(columns.astype(context.dtype)).to(context.device)


def _numbered(y: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    """Labels in order; the rows class by class; each row's class number."""
    if y.ndim != 1:
        raise DataError(f"y has shape {list(y.shape)}; expected a class label for each sample [n]")
    if y.dtype.kind == "f" and len(broken := np.flatnonzero(~np.isfinite(y))):
        raise DataError(f"y has no label in {_told(broken.tolist())}")
    if y.dtype.kind == "O" and (
        none := [i for i, one in enumerate(y) if one is None or one != one]
    ):
        raise DataError(f"y has no label in {_told(none)}")
    try:
        labels, numbers = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise DataError(f"y mixes kinds of labels ({error}); give all as texts, say") from error
    if len(labels) < 2:
        raise DataError(
            f"y has one class alone ({labels[0]!s}); there is nothing to tell apart: give samples "
            "of two classes at least"
        )
    real = y.dtype.kind == "f" and bool((y != np.rint(y)).any())
    if real and len(labels) > len(y) / 2:
        raise DataError(
            f"y holds {len(labels)} distinct real numbers in {len(y)} rows, which looks like a "
            "target of regression; the learner is of classification"
        )
    return tuple(labels.tolist()), np.argsort(numbers, kind="stable"), numbers


def _told(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_NAMED])) + (", ..." if len(rows) > _NAMED else "")
    return f"{len(rows)} rows, first {shown}" if len(rows) > 1 else f"row {shown}"


def _digest(x: Tensor, y: Tensor) -> int:
    """63 bits of a task, whatever the order of its samples."""
    arrays = [part.cpu().numpy() for part in (x, y)]
    facts = "".join(f"{array.dtype} {array.shape} " for array in arrays)
    rows = sorted(b"".join(one.tobytes() for one in row) for row in zip(*arrays, strict=True))
    digest = hashlib.blake2b(b"".join([facts.encode(), *rows]), digest_size=8)
    return int.from_bytes(digest.digest(), "little") >> 1
