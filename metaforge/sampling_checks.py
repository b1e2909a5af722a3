"""What is wrong with pools of classes, found before any task is drawn. Imports numpy alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    of_row = np.asarray(pool.sample_groups)
    used = [
        _smallest_sum(np.unique(of_row[rows], return_counts=True)[1], shots)
        for rows in pool.members
    ]
    return np.array(
        [size - (shots if u is None else u) for size, u in zip(sizes, used, strict=True)]
    )


def _smallest_sum(sizes: np.ndarray, at_least: int) -> int | None:
    """The smallest sum of a subset of ``sizes`` that is ``at_least`` so much, if any is.

    Bit s of ``reached`` says whether some subset sums to s.
    """
    reached = 1
    for size in sizes.tolist():
        reached |= reached << size
    above = reached >> at_least
    return at_least + (above & -above).bit_length() - 1 if above else None


def _shared_rows(pools: Mapping[str, Sequence[Pool]]) -> Iterator[str]:
    rows = {
        split: np.unique(np.concatenate([np.zeros(0, int), *(r for p in some for r in p.members)]))
        for split, some in pools.items()
    }
    names = list(rows)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            common = np.intersect1d(rows[a], rows[b])
            if len(common):
                yield (
                    f"splits {a!r} and {b!r} share {len(common)} rows, first {common[0]}: "
                    "a row belongs to one split"
                )


def _pool_problems(pool: Pool, sizes: TaskSizes) -> Iterator[str]:
    everything = np.concatenate([np.zeros(0, int), *pool.members])
    if len(np.unique(everything)) < len(everything):
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
