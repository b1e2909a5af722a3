"""Images with labels: what a backbone is trained on, and ``metaforge embed`` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from metaforge.pools import Pool
from metaforge.storage import DiskRows


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """n images with one or more labels.

    images         [m, *x], any dtype; ``scale`` makes them what the backbone wants
    labels         name -> [n] long; -1 for an image that has no such label
    rows           [n] long: which of ``images`` they are; None for all, in order
    names          name of a label -> what its numbers mean, where that is known
    sample_groups  [n] long: images of one number are never on both sides of a task; or None
    sample_names   of each of ``images``, such as the path of its file; or None
    """

    images: Tensor | DiskRows
    labels: Mapping[str, Tensor]
    scale: float = 1.0
    rows: Tensor | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sample_groups: Tensor | None = None
    sample_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.images if self.rows is None else self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image."""
        return tuple(self.images.shape[1:])

    @property
    def device(self) -> torch.device:
        return next(iter(self.labels.values())).device

    def inputs(self, rows: Tensor) -> Tensor:
        """[len(rows), *x] float32, on the labels' device."""
        where = rows if self.rows is None else self.rows.to(rows.device)[rows]
        if isinstance(self.images, DiskRows):
            found = torch.from_numpy(self.images.take(where.cpu().numpy()))
        else:
            found = self.images[where.to(self.images.device)]
        return found.to(self.device).float() * self.scale

    def to(self, device: str) -> LabelledImages:
        """The labels there, and the images, unless they stay on disk."""
        images = self.images if isinstance(self.images, DiskRows) else self.images.to(device)
        labels = {name: values.to(device) for name, values in self.labels.items()}
        return replace(self, images=images, labels=labels)


@runtime_checkable
class LabelledSource(Protocol):
    """A task source whose classes can be trained on: images of a split with their labels."""

    fingerprint: str

    def labelled_images(self, split: str) -> LabelledImages: ...


def of_pools(
    images: Tensor | DiskRows,
    pools: Sequence[Pool],
    scale: float | None,
    sample_names: Sequence[str] | None = None,
) -> LabelledImages:
    """The images of a split's pools, each once and as it is, with its ``class`` and, where classes
    have groups, its ``group``. Rows beyond the images, which are of turned ones, are left out."""
    classes, groups = _Numbers(len(images)), _Numbers(len(images))
    samples = np.full(len(images), -1)
    for pool in pools:
        for position, (name, rows) in enumerate(zip(pool.class_names, pool.members, strict=True)):
            own = rows[rows < len(images)]
            if not len(own):
                continue
            classes.put(own, name)
            if pool.class_groups is not None:
                groups.put(own, pool.class_group_names[pool.class_groups[position]])
            if pool.sample_groups is not None:
                samples[own] = pool.sample_groups[own]
    rows = np.flatnonzero(classes.values >= 0)
    kept = {"class": classes} | ({"group": groups} if groups.names else {})
    return LabelledImages(
        images,
        {name: torch.from_numpy(numbers.values[rows]) for name, numbers in kept.items()},
        1.0 if scale is None else scale,
        torch.from_numpy(rows),
        {name: tuple(numbers.names) for name, numbers in kept.items()},
        torch.from_numpy(samples[rows]) if (samples[rows] >= 0).all() and len(rows) else None,
        sample_names,
    )


class _Numbers:
    """Names numbered as they come, and the number of each of n rows; -1 for none."""

    def __init__(self, n: int):
        self.values = np.full(n, -1)
        self.names: dict[str, int] = {}

    def put(self, rows: np.ndarray, name: str) -> None:
        self.values[rows] = self.names.setdefault(name, len(self.names))
