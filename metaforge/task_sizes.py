"""How large tasks are, and whether a pool's classes have the rows for them. Plain Python.

A data set's check counts its classes with this alone, so that it answers at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from metaforge.errors import DataError

TooFew = Literal["error", "drop", "replace"]

#: Classes named one by one for each pool; the others are counted.
NAMED = 10


@dataclass(frozen=True)
class TaskSizes:
    """Ways, and shots and queries of each class: a number, or a range ``(low, high)``.

    In a range, each class of each task draws its own number uniformly, ends included.
    ``too_few`` says what becomes of a class with too few rows for the highest numbers:
    ``error``; ``drop`` leaves the class out; ``replace`` repeats query rows (it never mixes
    support and query).
    """

    ways: int
    shots: int | tuple[int, int]
    queries: int | tuple[int, int]
    too_few: TooFew = "error"

    def __post_init__(self) -> None:
        if self.ways < 2:
            raise DataError(f"ways is {self.ways}; a task needs at least 2 classes")
        for name in ("shots", "queries"):
            low, high = _range(getattr(self, name))
            if not 1 <= low <= high:
                raise DataError(
                    f"{name} is {getattr(self, name)}; give a number of at least 1, "
                    "or a range [low, high] with 1 <= low <= high"
                )

    @property
    def shots_range(self) -> tuple[int, int]:
        return _range(self.shots)

    @property
    def queries_range(self) -> tuple[int, int]:
        return _range(self.queries)

    @property
    def query_need(self) -> int:
        """The query rows that a class must have beside its support rows."""
        return 1 if self.too_few == "replace" else self.queries_range[1]


def _range(value: int | Sequence[int]) -> tuple[int, int]:
    low, high = (value, value) if isinstance(value, int) else value
    return low, high


class ClassCounts(NamedTuple):
    """How many rows the classes of a pool have.

    rows          for each class, its number of rows
    names         for each class
    in_groups     for each class, how many of its rows each sample group has; None if the
                  pool has no sample groups
    class_groups  for each class, if a task draws its classes from one class group; or None
    """

    rows: Sequence[int]
    names: Sequence[str]
    in_groups: Sequence[tuple[int, ...]] | None = None
    class_groups: Sequence[int] | None = None

    def query_room(self, shots: int) -> list[int]:
        """The most query rows of each class beside ``shots`` support rows; below 0 if there
        are not even those.

        With sample groups it is what the best division of whole groups leaves: the class's
        rows less the smallest sum of group sizes that reaches ``shots``.
        """
        if self.in_groups is None:
            return [rows - shots for rows in self.rows]
        used = [_smallest_sum(sizes, shots) for sizes in self.in_groups]
        return [rows - (shots if u is None else u) for rows, u in zip(self.rows, used, strict=True)]


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


def shortages(counts: ClassCounts, sizes: TaskSizes) -> Iterator[str]:
    """Why tasks of these sizes cannot be drawn: classes with too few rows (class, have,
    need), or too few classes that have enough."""
    shots, need = sizes.shots_range[1], sizes.query_need
    room = counts.query_room(shots)
    enough = [have >= need for have in room]
    if not all(enough) and sizes.too_few != "drop":
        yield from _too_few_rows(counts, sizes, room)
    elif counts.class_groups is not None:
        usable = Counter(g for g, ok in zip(counts.class_groups, enough, strict=True) if ok)
        largest = max(usable.values(), default=0)
        if largest < sizes.ways:
            yield (
                f"no class group has the {sizes.ways} classes of a task: the largest has "
                f"{largest} with enough rows; lower ways, or draw tasks across groups"
            )
    elif sum(enough) < sizes.ways:
        more = "lower ways" if all(enough) else "lower ways, shots or queries"
        yield (
            f"{sum(enough)} of its {len(enough)} classes have enough rows, a task needs "
            f"{sizes.ways}; {more}, or give this split more classes"
        )


def _too_few_rows(counts: ClassCounts, sizes: TaskSizes, room: Sequence[int]) -> list[str]:
    """A line for each class that has too few rows."""
    shots, need = sizes.shots_range[1], sizes.query_need
    bad = [c for c, have in enumerate(room) if have < need]
    lines = []
    for c in bad[:NAMED]:
        have = f"class {counts.names[c]!r} has {counts.rows[c]} rows"
        apart = ""
        if counts.in_groups is not None:
            have += (
                f" in {len(counts.in_groups[c])} sample groups, room for {max(room[c], 0)} queries"
            )
            apart = " in other sample groups"
        lines.append(f"{have}; needs {shots + need} ({shots} support + {need} query{apart})")
    if len(bad) > NAMED:
        lines.append(f"and {len(bad) - NAMED} more classes with too few rows")
    if sizes.too_few == "error":
        lines[-1] += "; lower shots or queries, or choose too_few: drop or replace"
    return lines
