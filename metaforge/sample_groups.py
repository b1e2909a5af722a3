"""Divide the sample groups of tasks into a support side and a query side. numpy alone.

Rows of one sample group (frames of one film, one drawer, one type family) are too alike to
stand on both sides of a task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaforge.seeding import bits

OPEN, SUPPORT, QUERY = 0, 1, 2


class SampleGroups:
    """The sample groups of a pool's classes, as padded tables.

    ``parts`` holds for each class the group of each of its members; ``query_need`` [C] the
    query rows that a division must leave to each class; ``shots`` and ``queries`` are the
    most of a class.
    """

    def __init__(
        self, parts: Sequence[np.ndarray], query_need: np.ndarray, shots: int, queries: int
    ):
        values, compact = np.unique(np.concatenate(parts), return_inverse=True)
        ends = np.cumsum([len(part) for part in parts])
        members = np.split(compact, ends[:-1])
        unique = [np.unique(part, return_counts=True) for part in members]
        self.n_groups = len(values)
        self._of_member = _padded(members, self.n_groups)
        self._groups = _padded([groups for groups, _ in unique], self.n_groups)
        self._counts = _padded([counts for _, counts in unique], 0)
        self._query_need, self._shots, self._queries = query_need, shots, queries

    def sides(
        self, keys: Sequence[int], ids: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The side of every member: ``(ok [n], sides [n, ways, members])``.

        ``keys`` hold one key for each attempt; a task is tried again, with its groups in
        another order, until each class has enough rows on both sides. ``ok`` is false where
        no attempt succeeded. Padding members are on no side.
        """
        of_group = np.full((len(ids), self.n_groups + 1), OPEN, dtype=np.int8)
        ok = np.zeros(len(ids), dtype=bool)
        for key in keys:
            todo = np.flatnonzero(~ok)
            ok[todo], of_group[todo] = self._divide(key, ids[todo], classes[todo])
            if ok.all():
                break
        of_group[:, self.n_groups] = OPEN
        return ok, of_group[np.arange(len(ids))[:, None, None], self._of_member[classes]]

    def _divide(
        self, key: int, ids: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One attempt: ``(ok [n], the side of each group [n, groups + 1])``.

        Class by class, in a random order of the groups that earlier classes left open, groups
        go to the support side until it holds its share of the class's rows, S / (S + Q), but
        never so many that too few are left for the queries; the others go to the query side.
        """
        sides = np.full((len(ids), self.n_groups + 1), OPEN, dtype=np.int8)
        ok = np.ones(len(ids), dtype=bool)
        for column in classes.T:
            order = bits(key, ids[:, None], self._groups[column]).argsort(-1)
            groups = np.take_along_axis(self._groups[column], order, -1)
            counts = np.take_along_axis(self._counts[column], order, -1)
            known = np.take_along_axis(sides, groups, -1)
            total = counts.sum(-1)
            most = total - self._query_need[column]
            share = np.rint(total * self._shots / (self._shots + self._queries))
            goal = np.clip(share, self._shots, most)
            support = (counts * (known == SUPPORT)).sum(-1)
            for j in range(groups.shape[1]):
                if (support >= goal).all():
                    break
                fits = (support < goal) & (support + counts[:, j] <= most)
                take = fits & (known[:, j] == OPEN)
                known[take, j] = SUPPORT
                support += np.where(take, counts[:, j], 0)
            known[known == OPEN] = QUERY
            np.put_along_axis(sides, groups, known, -1)
            ok &= (support >= self._shots) & (support <= most)
        return ok, sides


def _padded(parts: Sequence[np.ndarray], fill: int) -> np.ndarray:
    table = np.full((len(parts), max(map(len, parts))), fill, dtype=np.int64)
    for line, part in zip(table, parts, strict=True):
        line[: len(part)] = part
    return table
