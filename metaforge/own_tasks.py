"""Ready tasks that a user has in Python, as arrays.

Known by what they can do: a learn2learn ``Taskset``, a list of tasks, or anything else with a
length and tasks by index. A task is (x [k, *x], y [k]). Neither torch nor learn2learn is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.own_data import Arrays, array_of, named, refuse_unlike
from metaforge.split_names import SPLITS, split_named

_EXPECTED = (
    "expected tasks for each of train, val and test: a mapping (or what learn2learn's benchmarks "
    "give) of Tasksets, or of lists of tasks (x [k, *x], y [k])"
)


def are_tasks(data: Any) -> bool:
    """Whether data of Python are tasks, so far as Tasksets can be told from data sets."""
    return any(hasattr(part, "task_transforms") for part in (data, *_parts(data).values()))


def gathered_tasks(tasks: Any, draw: int | None, context: Context) -> Arrays:
    """Every task: x [T, k, *x], y [T, k] and split [T].

    Of a Taskset without end ``draw`` tasks are drawn, by its own random numbers; of others the
    first ``draw``, or all. Raises ``DataError`` for what are no tasks, or tasks of unlike shapes.
    """
    parts = _parts(tasks)
    if set(parts) != set(SPLITS):
        raise DataError(f"{named(tasks)}: {_EXPECTED}")
    xs, ys, splits = [], [], []
    for split in SPLITS:
        for x, y in _drawn(split, parts[split], draw, context):
            xs.append(x)
            ys.append(y)
            splits.append(split)
    refuse_unlike([x.shape for x in xs], "x of tasks")
    refuse_unlike([y.shape for y in ys], "y of tasks")
    return {"x": np.stack(xs), "y": np.stack(ys), "split": np.array(splits)}


def _parts(tasks: Any) -> dict[str, Any]:
    """The tasks of each split."""
    if isinstance(tasks, Mapping):
        return {str(split_named(str(key))): value for key, value in tasks.items()}
    fields = getattr(tasks, "_fields", ())
    return {str(split_named(key)): getattr(tasks, key) for key in fields if split_named(key)}


def _drawn(
    split: str, tasks: Any, draw: int | None, context: Context
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    endless = getattr(tasks, "num_tasks", None) == -1
    if endless and draw is None:
        raise DataError(f"{named(tasks)} of {split} has no end: say how many tasks, draw: 1000")
    if not endless and not (hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")):
        raise DataError(
            f"{named(tasks)} of {split} has no length and no tasks by index; {_EXPECTED}"
        )
    count = draw if endless else min(len(tasks), draw or len(tasks))
    if not count:
        raise DataError(f"{named(tasks)} of {split} is empty; {_EXPECTED}")
    with context.progress(f"reading tasks of {split}", count) as advance:
        for number in range(count):
            task = tasks.sample() if endless else tasks[number]
            if not isinstance(task, tuple | list) or len(task) < 2:
                raise DataError(
                    f"{named(tasks)} of {split}: task {number} is of type {type(task).__name__}; "
                    f"{_EXPECTED}"
                )
            x, y = array_of(task[0]), array_of(task[1])
            if y.ndim != 1 or x.shape[:1] != y.shape:
                raise DataError(
                    f"{named(tasks)} of {split}: task {number} has x {list(x.shape)} and y "
                    f"{list(y.shape)}; expected x [k, *x] and y [k]"
                )
            yield x, y
            advance(1)
