"""Small class data whose every row is told apart by its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.task_sizes import TaskSizes

CLASSES, ROWS = 30, 12
#: Rows of each of ``DRAWERS`` sample groups are in every class.
DRAWERS = 6


def pool(
    classes: range = range(CLASSES), rows: int = ROWS, name: str = "letters", **fields: Any
) -> Pool:
    """A pool of some of the classes: class c has the rows ``c * rows .. (c + 1) * rows - 1``."""
    return Pool(
        name,
        members=tuple(np.arange(c * rows, (c + 1) * rows) for c in classes),
        class_names=tuple(f"class {c}" for c in classes),
        **fields,
    )


def splits(**fields: Any) -> dict[str, list[Pool]]:
    """Train, val and test with 14, 7 and 9 classes."""
    parts = {"train": range(14), "val": range(14, 21), "test": range(21, CLASSES)}
    return {split: [pool(classes, **fields)] for split, classes in parts.items()}


def drawers(rows: int = CLASSES * ROWS) -> np.ndarray:
    """The sample group of each row: two rows of each drawer in a class."""
    return np.arange(rows) % DRAWERS


def source(
    pools: dict[str, list[Pool]] | None = None,
    *,
    seed: int = 0,
    ways: int = 5,
    shots: int | tuple[int, int] = 2,
    queries: int | tuple[int, int] = 3,
    too_few: Any = "error",
    kind: type[PooledTasks] = PooledTasks,
    **options: Any,
) -> PooledTasks:
    """A source over ``splits()``: row r of x is (r, r / 2), its features are r + (0, .1, .2)."""
    rows = torch.arange(CLASSES * ROWS, dtype=torch.float32)[:, None]
    return kind(
        1 + rows * torch.tensor([1.0, 0.5]),
        splits() if pools is None else pools,
        TaskSizes(ways, shots, queries, too_few),
        seed=seed,
        name="numbers",
        features=1 + rows + torch.tensor([0.0, 0.1, 0.2]),
        **options,
    )
