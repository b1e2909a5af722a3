"""Drawn tasks as tables of row numbers, kept block by block. numpy alone."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from metaforge.sampling import TaskSampler

#: Tasks of one index table, and the bytes that all tables together may take.
_BLOCK, _TABLE_BYTES = 1024, 1 << 28


class IndexTables:
    """Blocks of drawn tasks [tasks, 1 + ways + ways * S + ways * Q]: pool, classes, support
    and query rows; the least recently used are dropped.

    A block is tabulated at its second visit, or if much of it is asked for at once: a bank or
    a stream comes back to it, while ids scattered over a huge range do not pay for neighbours.
    Safe in several threads: what one of them drops while another looks is drawn again.
    """

    def __init__(self, sampler: TaskSampler):
        self._sampler = sampler
        self._tables: OrderedDict[tuple[str, int], np.ndarray | None] = OrderedDict()
        sizes = sampler.sizes
        ways, shots, queries = sizes.ways, sizes.shots_range[1], sizes.queries_range[1]
        self.widths = [1, ways, ways * shots, ways * queries]
        self._room = max(2, _TABLE_BYTES // (_BLOCK * sum(self.widths) * 4))

    def rows(self, split: str, ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), sum(self.widths)), dtype=np.int32)
        blocks = ids // _BLOCK
        direct = []
        for block in dict.fromkeys(blocks.tolist()):
            mine = np.flatnonzero(blocks == block)
            table = self._visit(split, block, len(mine))
            if table is None:
                direct.append(mine)
            else:
                rows[mine] = table[ids[mine] - block * _BLOCK]
        if direct:
            mine = np.concatenate(direct)
            rows[mine] = self._draw(split, ids[mine])
        return rows

    def _visit(self, split: str, block: int, count: int) -> np.ndarray | None:
        key = split, block
        again = key in self._tables
        table = self._tables.pop(key, None)
        if table is None and (again or count > _BLOCK // 8):
            table = self._draw(split, np.arange(block * _BLOCK, (block + 1) * _BLOCK))
        self._tables[key] = table
        while len(self._tables) > self._room:
            self._tables.popitem(last=False)
        return table

    def _draw(self, split: str, ids: np.ndarray) -> np.ndarray:
        drawn = self._sampler.draw(split, ids)
        columns = zip(drawn, self.widths, strict=True)
        return np.concatenate(
            [part.reshape(len(ids), width) for part, width in columns], axis=1, dtype=np.int32
        )
