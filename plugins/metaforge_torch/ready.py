"""The task source ``ready``: tasks that are there already."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError, said_by
from metaforge.preprocess import Preprocess
from metaforge.sampling import id_array
from metaforge.seeding import bits, derive
from metaforge.split_names import SPLITS
from metaforge.tasks import Ids, TaskBatch, TaskShape, TaskSource, View
from metaforge_arrays.inputs import images_preprocess
from metaforge_torch.options import ReadyOptions
from metaforge_torch.ready_tasks import Ready, ready


def load(options: ReadyOptions, context: Context) -> ReadyTasks:
    """Raises ``DataError`` as ``ready`` does."""
    with said_by("ready"):
        return ReadyTasks(ready(options, context), options, context)


class ReadyTasks(TaskSource):
    """Ready tasks, in an order of the seed's own.

    The training tasks come again and again: with T of them, task i is task i mod T. Of the other
    splits there are as many as there are: asked for more, ``batch`` raises ``DataError``, as a
    target that is counted twice would tell nothing new.
    """

    def __init__(self, tasks: Ready, options: ReadyOptions, context: Context):
        self._tasks, self.licence = tasks, options.licence
        self._x = torch.from_numpy(tasks.x).to(context.device)
        self._device, self._dtype = torch.device(context.device), getattr(torch, context.dtype)
        self._order = {
            split: _shuffled(np.flatnonzero(tasks.split == split), context.seed, split)
            for split in SPLITS
        }
        shape = tuple(tasks.x.shape[2:])
        self.shape = TaskShape(
            "classification", shape, options.ways, options.shots, options.queries
        )
        as_images = tasks.x.dtype == np.uint8 and len(shape) == 3
        self._preprocess = images_preprocess(shape) if as_images else Preprocess(shape)
        self.fingerprint = _digest(tasks, context.seed)

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        numbers = id_array(ids)
        tasks = self._numbers(split, numbers)
        support_x, support_y = self._side(tasks, self._tasks.support)
        query_x, query_y = self._side(tasks, self._tasks.query)
        return TaskBatch(
            support_x,
            support_y,
            query_x,
            query_y,
            support_mask=torch.ones(support_y.shape, dtype=self._dtype, device=self._device),
            query_mask=torch.ones(query_y.shape, dtype=self._dtype, device=self._device),
            task_ids=torch.from_numpy(numbers).to(self._device),
            outputs=self.shape.outputs,
        )

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        """Its number among those that were given, its own labels, and the places of its rows."""
        (task,) = self._numbers(split, np.array([task_id]))

        def told(rows: np.ndarray) -> list[list[str]]:
            return [[f"{task}:{row}" for row in own] for own in rows[task].tolist()]

        return {
            "task": int(task),
            "classes": list(map(str, self._tasks.labels[task])),
            "support": told(self._tasks.support),
            "query": told(self._tasks.query),
        }

    def preprocess(self, view: View = "input") -> Preprocess:
        return self._preprocess

    def summary(self) -> dict[str, Any]:
        return {split: f"{len(order)} tasks" for split, order in self._order.items()}

    def _numbers(self, split: str, ids: np.ndarray) -> np.ndarray:
        """Which of the tasks that were given each id is."""
        if split not in self._order:
            raise DataError(f"ready: no split {split!r}; it has {', '.join(SPLITS)}")
        order = self._order[split]
        if split != "train" and len(ids) and ids.max() >= len(order):
            raise DataError(
                f"ready: there are {len(order)} tasks of {split}, and number {ids.max()} is asked "
                "for: give more (draw), or ask for fewer (evaluate.targets, "
                "meta_train.validation_targets)"
            )
        return order[ids % len(order)]

    def _side(self, tasks: np.ndarray, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """x [B, ways n, *x] and y [B, ways n] of rows [T, ways, n]."""
        flat = torch.from_numpy(rows[tasks].reshape(len(tasks), -1)).to(self._device)
        x = self._x[torch.from_numpy(tasks).to(self._device)[:, None], flat].to(self._dtype)
        if self._x.dtype == torch.uint8:
            x = x / 255
        labels = torch.arange(self.shape.outputs, device=self._device)
        y = labels.repeat_interleave(rows.shape[2]).expand(len(tasks), -1)
        return x, y.contiguous()


def _shuffled(tasks: np.ndarray, seed: int, split: str) -> np.ndarray:
    return tasks[bits(derive(seed, "ready", split), tasks).argsort()]


def _digest(tasks: Ready, seed: int) -> str:
    digest = hashlib.blake2b(repr((seed, tasks.x.dtype, tasks.x.shape)).encode(), digest_size=16)
    for array in (tasks.x, tasks.support, tasks.query):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    for array in (tasks.split, tasks.labels):
        digest.update(repr(array.tolist()).encode())
    return digest.hexdigest()
