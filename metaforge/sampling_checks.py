"""What is wrong with pools of classes, found before any task is drawn. Imports numpy alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from metaforge.pools import Pool
from metaforge.task_sizes import ClassCounts, TaskSizes, shortages


def problems(pools: Mapping[str, Sequence[Pool]], sizes: TaskSizes) -> list[str]:
    """Every reason why the tasks asked for cannot be drawn; empty if there is none.

    Named are: splits without a pool; rows shared by two splits or by two classes of a pool;
    classes with too few rows (class, have, need); class groups and pools with too few classes.
    """
    found = list(_shared_rows(pools))
    for split, some in pools.items():
        if not some:
            found.append(f"split {split!r}: has no classes")
        for pool in some:
            where = f"split {split!r}" + (f", pool {pool.name!r}" if len(some) > 1 else "")
            if (_times_listed([pool]) > 1).any():
                found.append(f"{where}: a row is listed twice: each row belongs to one class, once")
            found += [f"{where}: {line}" for line in shortages(class_counts(pool), sizes)]
    return found


def class_counts(pool: Pool) -> ClassCounts:
    """How many rows the pool's classes have."""
    rows = np.array([len(members) for members in pool.members], dtype=np.int64)
    return ClassCounts(
        rows.tolist(),
        pool.class_names,
        None if pool.sample_groups is None else _in_groups(pool, rows),
        np.asarray(pool.class_groups).tolist() if pool.within else None,
    )


def _in_groups(pool: Pool, sizes: np.ndarray) -> list[tuple[int, ...]]:
    """For each class, how many rows each of its sample groups has."""
    rows = np.concatenate([np.zeros(0, int), *pool.members])
    names, groups = np.unique(np.asarray(pool.sample_groups)[rows], return_inverse=True)
    span = max(1, len(names))
    keys = np.repeat(np.arange(len(sizes)), sizes) * span + groups
    values, counts = np.unique(keys, return_counts=True)
    ends = np.searchsorted(values, np.arange(1, len(sizes)) * span)
    return [tuple(some.tolist()) for some in np.split(counts, ends)]


def _times_listed(pools: Iterable[Pool]) -> np.ndarray:
    """How often each row of the class data is a member: [the last such row + 1]."""
    return np.bincount(np.concatenate([np.zeros(0, int), *(r for p in pools for r in p.members)]))


def _shared_rows(pools: Mapping[str, Sequence[Pool]]) -> Iterator[str]:
    listed = {split: _times_listed(some) for split, some in pools.items()}
    for (a, in_a), (b, in_b) in combinations(listed.items(), 2):
        n = min(len(in_a), len(in_b))
        common = np.flatnonzero((in_a[:n] > 0) & (in_b[:n] > 0))
        if len(common):
            yield (
                f"splits {a!r} and {b!r} share {len(common)} rows, first {common[0]}: "
                "a row belongs to one split"
            )
