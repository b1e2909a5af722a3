"""What tasks are drawn from, and their sizes. numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metaforge.errors import DataError

TooFew = Literal["error", "drop", "replace"]


@dataclass(frozen=True, eq=False)
class Pool:
    """Classes of one split that tasks are drawn from.

    name               the task group of its tasks, unless they are grouped by class group
    members            for each class, the numbers of its rows in the class data
    class_names        for each class
    class_groups       [C] int: superclass, alphabet, script, ...; or None
    class_group_names  for each value of ``class_groups``
    sample_groups      one int for *each row of the class data*, or None: rows of one value
                       (near-duplicate frames, one drawer, one type family) are never on both
                       sides of a task, support and query, whatever their classes
    within             draw all the classes of a task from one class group, chosen in
                       proportion to its number of classes among those that have enough
    weight             share of the split's tasks, relative to its other pools
    """

    name: str
    members: tuple[np.ndarray, ...]
    class_names: tuple[str, ...]
    class_groups: np.ndarray | None = None
    class_group_names: tuple[str, ...] = ()
    sample_groups: np.ndarray | None = None
    within: bool = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise DataError(f"pool {self.name!r}: {problem}")

    def _problem(self) -> str | None:
        lengths = {len(self.members), len(self.class_names)}
        if self.class_groups is not None:
            lengths.add(len(self.class_groups))
        if len(lengths) > 1:
            return (
                "members, class_names and class_groups differ in length "
                f"({', '.join(map(str, sorted(lengths)))}); give an entry for each class"
            )
        if self.within and self.class_groups is None:
            return "within needs class_groups"
        if self.class_groups is not None and len(self.class_groups):
            low, high = self.class_groups.min(), self.class_groups.max()
            if low < 0 or high >= len(self.class_group_names):
                return (
                    f"class_groups run from {low} to {high}, but there are "
                    f"{len(self.class_group_names)} class_group_names; give a name for each"
                )
        if not self.weight > 0:
            return f"weight is {self.weight}; it must be positive"
        return None


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


def _range(value: int | Sequence[int]) -> tuple[int, int]:
    low, high = (value, value) if isinstance(value, int) else value
    return low, high
