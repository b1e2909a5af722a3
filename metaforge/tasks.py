"""Tasks: the batch every component works on, and the source that makes them.

A *task* (episode) is a support set D^tr and a query set D^val. Tasks are addressed by
index: task i of a split depends on (seed, split, i) alone, never on order, batch,
worker or rank. A *bank* of N tasks is the ids 0..N-1; a *stream* is the same thing
with ids that never repeat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from metaforge import pictures
from metaforge.errors import DataError
from metaforge.split_names import SPLITS as SPLITS

if TYPE_CHECKING:
    from metaforge.preprocess import Preprocess

TaskKind = Literal["classification", "regression"]
#: ``input`` is what the inner algorithm sees, ``features`` is phi(x), what kernels see.
View = Literal["input", "features"]
Ids = Tensor | np.ndarray | Sequence[int]


@dataclass(frozen=True)
class TaskShape:
    """What a learner must fit: the kind of task and the sizes of its arrays.

    ``outputs`` is the number of classes (ways) or of regression targets d;
    ``shots`` and ``queries`` are per class (or per task in regression), at most.
    """

    kind: TaskKind
    input_shape: tuple[int, ...]
    outputs: int
    shots: int
    queries: int


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """B tasks, padded to common sizes S (support) and Q (query).

    support_x    [B, S, *x]   inputs; sources fill padding rows with zeros, and who reads tasks
                              must not depend on what they hold
    support_y    [B, S]       class ids 0..ways-1 (long), or [B, S, d] real targets
    query_x      [B, Q, *x]   or None where the receiver may not see them
    query_y      like support_y, or None
    support_mask [B, S]       float, 1 for a sample and 0 for padding
    query_mask   [B, Q]
    task_ids     [B]          long
    outputs      the number of classes, or d; the same for every task of the batch

    Only the first two are required: masks default to ones, ids to 0..B-1, and
    ``outputs`` is read off the labels.
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor | None = None
    query_y: Tensor | None = None
    support_mask: Tensor = None  # type: ignore[assignment]
    query_mask: Tensor = None  # type: ignore[assignment]
    task_ids: Tensor = None  # type: ignore[assignment]
    outputs: int = 0

    def __post_init__(self) -> None:
        device = self.support_x.device

        def default(name: str, value: Tensor | int) -> None:
            object.__setattr__(self, name, value)

        if self.support_mask is None:
            default("support_mask", _ones(self.support_y, self.is_regression, self.support_x))
        if self.query_mask is None and self.query_x is not None:
            default(
                "query_mask",
                torch.ones(self.query_x.shape[:2], dtype=self.support_mask.dtype, device=device),
            )
        if self.task_ids is None:
            default("task_ids", torch.arange(len(self.support_x), device=device))
        if not self.outputs:
            y = self.support_y
            default("outputs", y.shape[-1] if self.is_regression else int(y.max()) + 1)

    def __len__(self) -> int:
        return len(self.support_x)

    @property
    def is_regression(self) -> bool:
        return self.support_y.is_floating_point()

    def without_query(self) -> TaskBatch:
        """The tasks as a target shows them to a plugin under ``signature: support``."""
        return replace(self, query_x=None, query_y=None, query_mask=None)  # type: ignore[arg-type]

    def without_query_labels(self) -> TaskBatch:
        """The tasks as a target shows them to a plugin that may see query inputs."""
        return replace(self, query_y=None)

    def support_as_query(self) -> TaskBatch:
        """(D, D): the support set as its own query, the target term of the paper's eq. 9."""
        return replace(
            self, query_x=self.support_x, query_y=self.support_y, query_mask=self.support_mask
        )

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> TaskBatch:
        """Some of the tasks, by a slice, a tensor of positions or a list of them."""
        return self._map(lambda value: value[index])

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> TaskBatch:
        """Move; ``dtype`` applies to the floating-point arrays alone."""
        return self._map(
            lambda value: value.to(
                device=device, dtype=dtype if value.is_floating_point() else None
            )
        )

    def _map(self, function: Any) -> TaskBatch:
        moved = {
            f.name: function(value)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


def _ones(y: Tensor, regression: bool, x: Tensor) -> Tensor:
    dtype = x.dtype if x.is_floating_point() else torch.float32
    return torch.ones(y.shape[:2], dtype=dtype, device=x.device)


class TaskSource(ABC):
    """Where tasks come from (the component kind ``dataset``).

    Laws, each checked by the conformance tests:

    * ``batch(split, ids)`` is a pure function of (seed, split, id) row by row.
    * Splits share no class. In a task, classes are distinct, labels are 0..ways-1,
      and no sample (nor any two with the same sample group) is in support and query.
    * ``batch(split, ids, view="features")`` has the same samples in the same places.
    * ``fingerprint`` changes whenever a task could.

    Attributes
    ----------
    shape        the ``TaskShape`` of every task
    fingerprint  hex digest of the data and of every option that shapes tasks
    licence      the data's licence, in words
    group_names  names of task groups (kind, superclass, alphabet, ...); may be empty
    has_features whether ``view="features"`` differs from the input
    on_disk      whether batches are read from disk, so that it pays to read the next one while a
                 step computes; ``batch`` has to be safe in two threads then
    """

    shape: TaskShape
    fingerprint: str
    licence: str = "not stated"
    group_names: tuple[str, ...] = ()
    has_features: bool = False
    on_disk: bool = False

    @abstractmethod
    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        """The tasks ``ids`` of a split, on the source's device."""

    def groups(self, split: str, ids: Ids) -> Tensor:
        """[n] long: each task's group, an index into ``group_names``; -1 for none."""
        return torch.full((len(ids),), -1)

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        """What made a task, for ``targets.jsonl``: classes in label order, sample ids, group."""
        return {}

    def pictures(self, split: str, task_id: int) -> np.ndarray | None:
        """A task to look at: uint8 [ways, c, h, w] (c is 1 or 3), a support sample of each class
        in label order; None where samples are no images. Reports show them.

        Here: each class's first support sample, where what the learner sees are images. A source
        whose learner sees features of images gives those images.
        """
        if self.shape.kind != "classification" or not pictures.is_image(self.shape.input_shape):
            return None
        task = unpadded(self.batch(split, [task_id]))
        labels = task.support_y[0]
        first = [int((labels == label).nonzero()[0]) for label in range(task.outputs)]
        return pictures.as_bytes(task.support_x[0, first].cpu().numpy())

    def preprocess(self, view: View = "input") -> Preprocess | None:
        """What was done to raw samples to give those of a view, so that it can be done to other
        samples. None where that is not known, as for views that others computed."""
        return None

    def resized(self, ways: int) -> TaskSource:
        """Its training tasks with ``ways`` classes each, drawn anew; of other splits, none.

        Raises ``DataError`` where there are no such tasks, as for a source without any but its
        own.
        """
        raise DataError(f"{type(self).__name__} makes tasks of {self.shape.outputs} classes alone")

    def summary(self) -> dict[str, Any]:
        """What a run's header says of the data: name, sizes of the splits, ways, shots."""
        return {}


def iterate_bank(
    source: TaskSource, n_tasks: int, view: View = "features", block: int = 1024
) -> Iterator[TaskBatch]:
    """The training bank 0..n_tasks-1, block by block, so that it is never held whole."""
    for start in range(0, n_tasks, block):
        yield source.batch("train", range(start, min(start + block, n_tasks)), view)


def concatenate(*batches: TaskBatch) -> TaskBatch:
    """The tasks of all, padded with masked zero rows to common S and Q."""
    joined: dict[str, Any] = {"outputs": batches[0].outputs}
    for f in fields(TaskBatch):
        values = [getattr(batch, f.name) for batch in batches]
        if not isinstance(values[0], Tensor):
            continue
        if f.name != "task_ids":
            length = max(value.shape[1] for value in values)
            values = [_pad(value, length) for value in values]
        joined[f.name] = torch.cat(values)
    return TaskBatch(**joined)


def unpadded(task: TaskBatch) -> TaskBatch:
    """One task (B = 1) without its padding rows: what a transductive learner may be shown."""
    kept = {"support": task.support_mask[0] > 0}
    if task.query_x is not None:
        kept["query"] = task.query_mask[0] > 0
    rows: dict[str, Any] = {
        name: value[:, kept[name.partition("_")[0]]]
        for name in ("support_x", "support_y", "support_mask", "query_x", "query_y", "query_mask")
        if (value := getattr(task, name)) is not None
    }
    return replace(task, **rows)


def _pad(value: Tensor, length: int) -> Tensor:
    missing = length - value.shape[1]
    if not missing:
        return value
    return torch.cat([value, value.new_zeros(value.shape[0], missing, *value.shape[2:])], 1)
