"""Few-shot classification tasks as tables of row numbers, drawn by stateless hashing.

This module, ``metaforge.pools`` and ``metaforge.sampling_checks`` import numpy alone, so
that a recipe's data can be checked before torch is loaded; ``metaforge.pooled.PooledTasks``
puts the tables to work on tensors.

Symbols: n tasks asked for, S and Q the most support and query rows of a class, C classes
of a pool, G sample groups of a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.sample_groups import QUERY, SUPPORT, SampleGroups
from metaforge.sampling_checks import class_counts, problems
from metaforge.seeding import bits, derive, uniform
from metaforge.task_sizes import TaskSizes

#: Bound on the entries of a temporary array.
_ENTRIES = 1 << 22
#: Orders of the sample groups that are tried for some classes, and classes for a task.
_ATTEMPTS = 16


def id_array(ids: Any) -> np.ndarray:
    """Task ids (a range, a sequence or a tensor on any device) as an int64 array."""
    return np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids, dtype=np.int64)


class Drawn(NamedTuple):
    """Tasks as row numbers.

    pools    [n]           position of the task's pool in its split
    classes  [n, ways]     position of each class in its pool, in label order
    support  [n, ways, S]  rows of the class data; -1 is padding
    query    [n, ways, Q]
    """

    pools: np.ndarray
    classes: np.ndarray
    support: np.ndarray
    query: np.ndarray


def distinct(key: int, sizes: np.ndarray, k: int, *counters: np.ndarray | int) -> np.ndarray:
    """k distinct integers below each of ``sizes`` [...], in random order: ``[..., k]``.

    Every ordered selection is equally likely. Where a size is below k, all its integers
    come first and -1 fills the rest. Entry [...] depends on ``key`` and its own counters
    alone. Floyd's method (Bentley and Floyd, CACM 30(9), 1987), then a shuffle.
    """
    step = np.arange(k)
    spread = [np.asarray(counter)[..., None] for counter in counters]
    draws = uniform(key, *spread, 2 * step)
    picks = np.full(draws.shape, -1, dtype=np.int64)
    for j in range(k):
        top = sizes - k + j
        pick = (draws[..., j] * (top + 1)).astype(np.int64)
        taken = (picks[..., :j] == pick[..., None]).any(-1)
        picks[..., j] = np.where(top < 0, -1, np.where(taken, top, pick))
    order = bits(key, *spread, 2 * step + 1)
    order[picks < 0] = np.iinfo(np.uint64).max
    return np.take_along_axis(picks, order.argsort(-1), -1)


class TaskSampler:
    """Draws the tasks of every split: task i is a function of (seed, split, i) alone.

    Classes of a task are distinct and in random order; support and query rows of a class
    are disjoint, and so are their sample groups over the whole task. Raises ``DataError``
    with every problem that ``metaforge.sampling_checks.problems`` finds.
    """

    def __init__(self, pools: Mapping[str, Sequence[Pool]], sizes: TaskSizes, seed: int):
        if found := problems(pools, sizes):
            raise DataError("\n".join(found))
        self.pools = {split: tuple(some) for split, some in pools.items()}
        self.sizes = sizes
        self.seed = seed
        self._tables = {
            split: [_Table(pool, sizes) for pool in some] for split, some in self.pools.items()
        }

    def choose(self, split: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pool [n] of each task, and the class group [n] its classes come from (-1 where
        the pool mixes groups)."""
        ids = np.asarray(ids, dtype=np.int64)
        pools = self._pool(split, ids)
        groups = np.full(len(ids), -1)
        for position, table in enumerate(self._tables[split]):
            mine = pools == position
            groups[mine] = table.bin_groups[self._bin(split, table, ids[mine])]
        return pools, groups

    def usable_classes(self, split: str) -> list[int]:
        """How many classes of each pool tasks can have: those with enough rows and, within
        class groups, enough others in their group."""
        return [int(table.bin_counts.sum()) for table in self._tables[split]]

    def draw(self, split: str, ids: np.ndarray) -> Drawn:
        """The tasks ``ids`` [n] as row numbers."""
        ids = np.asarray(ids, dtype=np.int64)
        ways, n = self.sizes.ways, len(ids)
        drawn = Drawn(
            self._pool(split, ids),
            np.empty((n, ways), dtype=np.int32),
            np.empty((n, ways, self.sizes.shots_range[1]), dtype=np.int32),
            np.empty((n, ways, self.sizes.queries_range[1]), dtype=np.int32),
        )
        for position, table in enumerate(self._tables[split]):
            mine = np.flatnonzero(drawn.pools == position)
            for start in range(0, len(mine), table.block):
                where = mine[start : start + table.block]
                parts = self._draw_block(split, table, ids[where])
                for whole, part in zip(drawn[1:], parts, strict=True):
                    whole[where] = part
        return drawn

    def _key(self, split: str, use: str) -> int:
        return derive(self.seed, "tasks", split, use)

    def _pool(self, split: str, ids: np.ndarray) -> np.ndarray:
        edges = np.cumsum([pool.weight for pool in self.pools[split]])
        point = uniform(self._key(split, "pool"), ids) * edges[-1]
        return np.searchsorted(edges[:-1], point, side="right")

    def _bin(self, split: str, table: _Table, ids: np.ndarray) -> np.ndarray:
        edges = np.cumsum(table.bin_counts)
        point = uniform(self._key(split, "class group"), ids) * edges[-1]
        return np.searchsorted(edges[:-1], point, side="right")

    def _draw_block(
        self, split: str, table: _Table, ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if table.sample_groups is None:
            classes = self._classes(split, table, ids)
            support, query = self._plain_rows(split, table, ids, classes)
        else:
            classes, sides = self._divided(split, table, table.sample_groups, ids)
            support, query = self._grouped_rows(split, table, ids, classes, sides)
        for side, rows, span in (
            ("shots", support, self.sizes.shots_range),
            ("queries", query, self.sizes.queries_range),
        ):
            rows[self._padding(split, side, span, ids)] = -1
        return classes, support, query

    def _classes(self, split: str, table: _Table, ids: np.ndarray, attempt: int = 0) -> np.ndarray:
        """[n, ways]: positions of distinct classes in the pool, all of the task's bin."""
        bins = self._bin(split, table, ids)
        key = self._key(split, f"classes {attempt}")
        picks = distinct(key, table.bin_counts[bins], self.sizes.ways, ids)
        return table.kept[table.bin_starts[bins][:, None] + picks]

    def _padding(self, split: str, side: str, span: tuple[int, int], ids: np.ndarray) -> np.ndarray:
        """[n, ways, high] bool: the slots past each class's own number of rows."""
        low, high = span
        ways = np.arange(self.sizes.ways)
        draw = uniform(self._key(split, side), ids[:, None], ways)
        count = low + (draw * (high - low + 1)).astype(np.int64)
        return np.arange(high) >= count[..., None]

    def _plain_rows(
        self, split: str, table: _Table, ids: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        shots, queries = self.sizes.shots_range[1], self.sizes.queries_range[1]
        counters = ids[:, None], np.arange(self.sizes.ways)
        sizes = table.lengths[classes]
        picks = distinct(self._key(split, "rows"), sizes, shots + queries, *counters)
        query = _repeat(self._key(split, "repeats"), picks[..., shots:], sizes - shots, *counters)
        return table.rows_of(classes, picks[..., :shots]), table.rows_of(classes, query)

    def _divided(
        self, split: str, table: _Table, groups: SampleGroups, ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Classes [n, ways] and the side of each of their members [n, ways, members].

        Classes whose sample groups cannot be divided between support and query are drawn
        anew, as a function of the task's id alone.
        """
        keys = [self._key(split, f"sides {attempt}") for attempt in range(_ATTEMPTS)]
        classes = self._classes(split, table, ids)
        ok, sides = groups.sides(keys, ids, classes)
        for attempt in range(1, _ATTEMPTS):
            if ok.all():
                return classes, sides
            todo = np.flatnonzero(~ok)
            classes[todo] = self._classes(split, table, ids[todo], attempt)
            ok[todo], sides[todo] = groups.sides(keys, ids[todo], classes[todo])
        bad = int(np.flatnonzero(~ok)[0])
        names = [table.pool.class_names[c] for c in classes[bad]]
        raise DataError(
            f"split {split!r}, pool {table.pool.name!r}, task {ids[bad]}: found no classes whose "
            f"sample groups leave each enough support and query rows (the last tried: {names}); "
            "ask for fewer shots, queries or ways, or give no sample groups"
        )

    def _grouped_rows(
        self,
        split: str,
        table: _Table,
        ids: np.ndarray,
        classes: np.ndarray,
        sides: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        counters = ids[:, None], np.arange(self.sizes.ways)
        rows = []
        for side, k in ((SUPPORT, self.sizes.shots_range[1]), (QUERY, self.sizes.queries_range[1])):
            mine = sides == side
            candidates = np.argsort(~mine, axis=-1, kind="stable")
            count = mine.sum(-1)
            picks = distinct(self._key(split, f"rows {side}"), count, k, *counters)
            picks = _repeat(self._key(split, f"repeats {side}"), picks, count, *counters)
            rows.append(table.rows_of(classes, np.take_along_axis(candidates, picks, -1)))
        return rows[0], rows[1]


def _repeat(
    key: int, picks: np.ndarray, sizes: np.ndarray, *counters: np.ndarray | int
) -> np.ndarray:
    """Picks [..., k] with each missing one (-1) replaced by one of the valid, at random.

    ``sizes`` [...] is how many are valid; they come first.
    """
    missing = picks < 0
    if not missing.any():
        return picks
    spread = [np.asarray(counter)[..., None] for counter in counters]
    valid = np.minimum(sizes, picks.shape[-1])[..., None]
    again = (uniform(key, *spread, np.arange(picks.shape[-1])) * valid).astype(np.int64)
    return np.where(missing, np.take_along_axis(picks, again, -1), picks)


class _Table:
    """A pool laid out for vectorised drawing."""

    def __init__(self, pool: Pool, sizes: TaskSizes):
        self.pool = pool
        shots, queries = sizes.shots_range[1], sizes.queries_range[1]
        self.lengths = np.array([len(rows) for rows in pool.members])
        self._offsets = np.cumsum(self.lengths) - self.lengths
        self._rows = np.concatenate([np.asarray(rows) for rows in pool.members]).astype(np.int32)
        room = np.array(class_counts(pool).query_room(shots))
        enough = room >= sizes.query_need
        self._set_bins(np.flatnonzero(enough), sizes.ways)
        self.sample_groups: SampleGroups | None = None
        widest = sizes.ways * (shots + queries)
        if pool.sample_groups is not None:
            of_row = np.asarray(pool.sample_groups)
            parts = [of_row[np.asarray(rows)] for rows in pool.members]
            need = np.minimum(room, queries)  # below queries only where they may repeat
            self.sample_groups = SampleGroups(parts, need, shots, queries)
            members = sizes.ways * int(self.lengths.max())
            widest = max(widest, members, self.sample_groups.n_groups)
        #: Tasks drawn at once, so that no temporary array is large.
        self.block = max(1, min(1024, _ENTRIES // widest))

    def _set_bins(self, kept: np.ndarray, ways: int) -> None:
        """Bins of classes that a task may be drawn from: one, or the class groups."""
        if self.pool.within:
            assert self.pool.class_groups is not None
            groups = np.asarray(self.pool.class_groups)[kept]
        else:
            groups = np.full(len(kept), -1)
        values, counts = np.unique(groups, return_counts=True)
        order = np.argsort(groups, kind="stable")
        self.kept = kept[order]
        starts = np.cumsum(counts) - counts
        enough = counts >= ways
        self.bin_groups = values[enough]
        self.bin_starts, self.bin_counts = starts[enough], counts[enough]

    def rows_of(self, classes: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Rows of the class data [n, ways, k] from positions among each class's members."""
        return self._rows[self._offsets[classes][..., None] + members]
