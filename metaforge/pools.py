"""What tasks are drawn from. numpy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metaforge.errors import DataError


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
