"""Classes with their splits and groups as the pools that tasks are drawn from. numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaforge.class_labels import Classes
from metaforge.pools import Pool
from metaforge.split_names import SPLITS


@dataclass(frozen=True, eq=False)
class Division:
    """What is said of C classes and their n rows.

    names          of each class
    split          [C] position of its split in ``SPLITS``, -1 for none
    groups         [C] numbers of their groups, named by ``group_names``; or None
    sample_groups  [n] as ``Pool`` has them; or None
    """

    classes: Classes
    names: Sequence[str]
    split: np.ndarray
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    sample_groups: np.ndarray | None = None

    def pools(self, within: float) -> dict[str, list[Pool]]:
        """The pools of each split: tasks across class groups, within one, or both by the share
        ``within``."""
        shares = {"across": 1 - within, "within": within}
        return {
            name: [
                self._pool(kind, share, np.flatnonzero(self.split == number))
                for kind, share in shares.items()
                if share
            ]
            for number, name in enumerate(SPLITS)
        }

    def _pool(self, kind: str, share: float, mine: np.ndarray) -> Pool:
        members = self.classes.members()
        return Pool(
            name=kind,
            members=tuple(members[c] for c in mine),
            class_names=tuple(self.names[c] for c in mine),
            class_groups=None if self.groups is None else self.groups[mine],
            class_group_names=self.group_names,
            sample_groups=self.sample_groups,
            within=kind == "within",
            weight=share,
        )


def numbered(values: np.ndarray) -> np.ndarray:
    """[n]: the distinct values as 0, 1, ..., in order."""
    return np.unique(values, return_inverse=True)[1]
