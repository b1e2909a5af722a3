"""What is wrong with pools of classes, found before any task is drawn. Imports numpy alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from metaforge.pools import Pool, TaskSizes

#: Classes named one by one for each pool; the others are counted.
NAMED = 10


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
            found += [f"{where}: {line}" for line in _pool_problems(pool, sizes)]
    return found


def query_room(pool: Pool, shots: int) -> np.ndarray:
    """[C]: the most query rows of each class beside ``shots`` support rows; below 0 if there
    are not even those.

    With sample groups it is what the best division of whole groups leaves: the class's rows
    less the smallest sum of group sizes that reaches ``shots``.
    """
    sizes = np.array([len(rows) for rows in pool.members], dtype=np.int64)
    if pool.sample_groups is None:
        return sizes - shots
    used = [_smallest_sum(counts, shots) for counts in _group_sizes(pool, sizes)]
    return np.array(
        [size - (shots if u is None else u) for size, u in zip(sizes, used, strict=True)]
    )


def _group_sizes(pool: Pool, sizes: np.ndarray) -> list[tuple[int, ...]]:
    """For each class, how many rows each of its sample groups has."""
    rows = np.concatenate([np.zeros(0, int), *pool.members])
    names, groups = np.unique(np.asarray(pool.sample_groups)[rows], return_inverse=True)
    span = max(1, len(names))
    keys = np.repeat(np.arange(len(sizes)), sizes) * span + groups
    values, counts = np.unique(keys, return_counts=True)
    ends = np.searchsorted(values, np.arange(1, len(sizes)) * span)
    return [tuple(some.tolist()) for some in np.split(counts, ends)]


@lru_cache(maxsize=4096)
def _smallest_sum(sizes: tuple[int, ...], at_least: int) -> int | None:
    """The smallest sum of a subset of ``sizes`` that is ``at_least`` so much, if any is.

    Bit s of ``reached`` says whether some subset sums to s.
    """
    reached = 1
    for size in sizes:
        reached |= reached << size
    above = reached >> at_least
    return at_least + (above & -above).bit_length() - 1 if above else None


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


def _pool_problems(pool: Pool, sizes: TaskSizes) -> Iterator[str]:
    if (_times_listed([pool]) > 1).any():
        yield "a row is listed twice: each row belongs to one class, once"
    enough, lines = _enough_rows(pool, sizes)
    if lines and sizes.too_few != "drop":
        yield from lines
    elif pool.within:
        assert pool.class_groups is not None
        counts = np.bincount(np.asarray(pool.class_groups)[enough], minlength=1)
        if counts.max() < sizes.ways:
            yield (
                f"no class group has the {sizes.ways} classes of a task: the largest has "
                f"{counts.max()} with enough rows; lower ways, or draw tasks across groups"
            )
    elif enough.sum() < sizes.ways:
        yield (
            f"{enough.sum()} of its {len(enough)} classes have enough rows, a task needs "
            f"{sizes.ways}; lower ways, shots or queries"
        )


def _enough_rows(pool: Pool, sizes: TaskSizes) -> tuple[np.ndarray, list[str]]:
    """Which classes [C] have enough rows, and a line for each that does not."""
    shots, queries = sizes.shots_range[1], sizes.queries_range[1]
    room = query_room(pool, shots)
    need = 1 if sizes.too_few == "replace" else queries
    enough = room >= need
    bad = np.flatnonzero(~enough)
    lines = []
    for c in bad[:NAMED]:
        have = f"class {pool.class_names[c]!r} has {len(pool.members[c])} rows"
        if pool.sample_groups is not None:
            count = len(np.unique(np.asarray(pool.sample_groups)[pool.members[c]]))
            have += f" in {count} sample groups, room for {max(room[c], 0)} queries"
        lines.append(
            f"{have}; needs {shots + need} ({shots} support + {need} query"
            f"{' in other sample groups' if pool.sample_groups is not None else ''})"
        )
    if len(bad) > NAMED:
        lines.append(f"and {len(bad) - NAMED} more classes with too few rows")
    if len(bad) and sizes.too_few == "error":
        lines[-1] += "; lower shots or queries, or choose too_few: drop or replace"
    return enough, lines
