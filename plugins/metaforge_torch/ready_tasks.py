"""Ready tasks checked, and their rows put in order: torch-free.

Symbols: T tasks of k rows each, of which a task uses ways x (shots + queries).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from metaforge.array_files import Arrays as Files
from metaforge.class_labels import first_few
from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError
from metaforge.own_data import Arrays
from metaforge.own_tasks import gathered_tasks
from metaforge.split_names import SPLITS
from metaforge_arrays.inputs import as_float, not_finite
from metaforge_torch.options import ReadyOptions

_NAMES = ("x", "y", "split")


class Ready(NamedTuple):
    """x [T, k, *x], the split of each task, and of each the numbers of its rows in order: support
    [T, ways, shots] and query [T, ways, queries]. ``labels`` [T, ways]: the classes' own."""

    x: np.ndarray
    split: np.ndarray
    labels: np.ndarray
    support: np.ndarray
    query: np.ndarray


def check(options: ReadyOptions, context: Context) -> list[str]:
    """What is wrong with the tasks of a file, and with tasks that are given from Python."""
    try:
        ready(options, context)
    except DataError as error:
        return [f"ready: {line}" for line in str(error).split("\n")]
    return []


def facts(options: ReadyOptions, context: Context) -> DataFacts:
    """Width and shape of a sample. Raises what ``ready`` raises."""
    shape = ready(options, context).x.shape[2:]
    return DataFacts(width=prod(shape), shape=shape)


def ready(options: ReadyOptions, context: Context) -> Ready:
    """The tasks. Raises ``DataError`` for arrays that do not fit each other, numbers that are not
    finite, splits without a task, and tasks of other classes or with too few rows."""
    arrays = _read(options, context)
    x, y, split = (arrays[name] for name in _NAMES)
    if x.ndim < 3 or y.shape != x.shape[:2] or split.shape != x.shape[:1]:
        told = ", ".join(f"{name} {list(arrays[name].shape)}" for name in _NAMES)
        raise DataError(f"found {told}; expected x [T, k, *x], y [T, k] and split [T]")
    if x.dtype != np.uint8:
        x = as_float(x, context.dtype)
        if len(bad := not_finite(x)):
            raise DataError(
                f"{len(bad)} tasks hold NaN or infinite numbers, first {first_few(bad)}"
            )
    lines = [f"no task is of split {name!r}" for name in SPLITS if not (split == name).any()]
    if others := sorted(set(split.tolist()) - set(SPLITS)):
        lines.append(f"split holds {', '.join(map(str, others))}; expected {', '.join(SPLITS)}")
    rows = [_rows(labels, options) for labels in y]
    wrong = [(task, why) for task, why in enumerate(rows) if isinstance(why, str)]
    lines += [f"task {task} of {split[task]}: {why}" for task, why in wrong[:_NAMED]]
    lines += [f"and {len(wrong) - _NAMED} more tasks"] if len(wrong) > _NAMED else []
    if lines:
        raise DataError("\n".join(lines))
    found = [row for row in rows if not isinstance(row, str)]
    labels = np.stack([own for own, _ in found])
    order = np.stack([numbers for _, numbers in found])
    return Ready(x, split, labels, order[..., : options.shots], order[..., options.shots :])


#: Tasks that a message names.
_NAMED = 10


def _read(options: ReadyOptions, context: Context) -> Arrays:
    if (options.path is None) == (options.tasks is None):
        raise DataError("give path, a file of tasks, or from Python tasks; one of the two")
    if options.tasks is not None:
        return gathered_tasks(options.tasks, options.draw, context)
    files = Files(options.path)
    if lines := files.missing({name: name for name in _NAMES}):
        raise DataError("\n".join(lines))
    return {name: files.get(name, name) for name in _NAMES}


def _rows(y: np.ndarray, options: ReadyOptions) -> tuple[np.ndarray, np.ndarray] | str:
    """The classes of a task [ways], and the rows of each in the task's order
    [ways, shots + queries]; or why it has none."""
    labels, of_row, counts = np.unique(y, return_inverse=True, return_counts=True)
    need = options.shots + options.queries
    if len(labels) != options.ways:
        return f"has {len(labels)} classes, expected {options.ways} (ways)"
    if counts.min() < need:
        return (
            f"class {labels[counts.argmin()]} has {counts.min()} rows; needs {need} "
            f"({options.shots} support + {options.queries} query): lower shots or queries"
        )
    order = np.argsort(of_row, kind="stable")
    starts = np.cumsum(counts) - counts
    return labels, order[starts[:, None] + np.arange(need)]
