"""Classes turned by quarter turns, as further classes. numpy alone.

With n rows of class data, the sample of row r turned by q quarter turns is numbered q n + r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from metaforge.pools import Pool

#: Quarter turns, counter-clockwise; 0 is the class itself.
TURNS = range(4)


def turned_pools(
    pools: Mapping[str, Sequence[Pool]], rows: int, which: str
) -> dict[str, list[Pool]]:
    """The pools with each class in its four positions. ``which``: of ``train``, ``all`` splits
    or of ``none``; ``rows`` is n."""
    return {
        split: [_turned(pool, rows) for pool in some]
        if which == "all" or which == split
        else list(some)
        for split, some in pools.items()
    }


def _turned(pool: Pool, rows: int) -> Pool:
    """Rows of one sample group stay of one however they are turned."""
    return replace(
        pool,
        members=tuple(turn * rows + own for turn in TURNS for own in pool.members),
        class_names=tuple(turned_name(name, turn) for turn in TURNS for name in pool.class_names),
        class_groups=None if pool.class_groups is None else np.tile(pool.class_groups, len(TURNS)),
        sample_groups=(
            None if pool.sample_groups is None else np.tile(pool.sample_groups, len(TURNS))
        ),
    )


def turned_name(name: str, turn: int) -> str:
    return f"{name}, turned {90 * turn}" if turn else name


def told(numbers: Sequence[int], rows: int, names: Sequence[str] | None = None) -> list[int | str]:
    """Sample numbers in words where they are turned or have names: row 5, ``"5, turned 90"``,
    ``"cat/0.png, turned 90"``."""
    pairs = (divmod(number, rows) for number in numbers)
    named = ((turn, row if names is None else str(names[row])) for turn, row in pairs)
    return [turned_name(str(name), turn) if turn else name for turn, name in named]
