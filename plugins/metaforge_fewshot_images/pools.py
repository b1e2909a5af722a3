"""What tasks are drawn from. numpy alone."""

from __future__ import annotations

import numpy as np

from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.split_names import SPLITS
from metaforge.turned import turned_pools
from metaforge_fewshot_images.content import Content
from metaforge_fewshot_images.options import BenchmarkOptions, OmniglotOptions


def task_pools(options: BenchmarkOptions, content: Content) -> dict[str, list[Pool]]:
    """The pools of each split: tasks across groups, within one, or both by ``within``; classes
    turned, if that is asked for. Raises ``DataError`` where the files tell no groups."""
    if options.within and content.groups is None:
        raise DataError(
            f"within is {options.within:g}, but the {content.layout} tell no groups of classes: "
            "leave within out, or place the files in another layout"
        )
    members = content.members()
    apart = isinstance(options, OmniglotOptions) and options.drawers
    shares = {"across": 1 - options.within, "within": options.within}

    def pool(kind: str, mine: np.ndarray) -> Pool:
        return Pool(
            name=kind,
            members=tuple(members[c] for c in mine),
            class_names=tuple(content.class_names[c] for c in mine),
            class_groups=None if content.groups is None else content.groups[mine],
            class_group_names=content.group_names,
            sample_groups=content.drawers if apart else None,
            within=kind == "within",
            weight=shares[kind],
        )

    plain = {
        split: [pool(kind, np.flatnonzero(content.split == n)) for kind in shares if shares[kind]]
        for n, split in enumerate(SPLITS)
    }
    return turned_pools(plain, len(content), options.augment.rotations)
