"""What the files of a data set hold, found without reading the images. numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from metaforge.class_labels import Classes
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_form import ImageForm
from metaforge.split_names import SPLITS

#: Things that a line names one by one; the others are counted.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class Content:
    """Images, their classes, and what is known of both.

    layout       the form of the files, in words
    places       the files or folders that are read
    form         how the images are given
    class_names  [C]
    of_row       [n] the position of each image's class in ``class_names``
    split        [C] the position of each class's split in ``SPLITS``, -1 for none of them
    blocks       gives the images in order, uint8 [k, c, h, w]; raises ``DataError``
    identity     names the images: files, their sizes and times of change
    groups       [C] the position of each class's group in ``group_names``; or None
    drawers      [n] who drew each image; or None
    names        of each image; empty where the files have none
    slow         whether the images take long to read, so that they are kept once they are
    problems     every fault, a line each; images are read only where there is none
    lacks        what the published data set has and the files have not, a line each
    """

    layout: str
    places: tuple[Path, ...]
    form: ImageForm
    class_names: tuple[str, ...]
    of_row: np.ndarray
    split: np.ndarray
    blocks: Callable[[Context], Iterator[np.ndarray]]
    identity: tuple[object, ...]
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    drawers: np.ndarray | None = None
    names: Sequence[str] = ()
    slow: bool = False
    problems: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.of_row)

    @property
    def classes(self) -> Classes:
        return Classes(np.array(self.class_names), self.of_row)

    def counted(self) -> str:
        """``"100 classes (64 train, 16 val, 20 test), 60,000 images"``."""
        told = (f"{(self.split == number).sum()} {split}" for number, split in enumerate(SPLITS))
        classes = f"{len(self.class_names):,} classes ({', '.join(told)})"
        return f"{classes}, {len(self):,} images"


@dataclass(frozen=True)
class Counts:
    """How many classes and images of each split the published data set has. ``each`` is the
    number of images of every class, where they are alike."""

    classes: Mapping[str, int]
    images: Mapping[str, int] = field(default_factory=dict)
    each: int | None = None

    def lacking(self, found: Content) -> tuple[str, ...]:
        """What differs, a line each."""
        lines = []
        rows = np.array([len(own) for own in found.classes.members()])
        for number, split in enumerate(SPLITS):
            mine = found.split == number
            pairs = [("classes", int(mine.sum()), self.classes.get(split))]
            pairs.append(("images", int(rows[mine].sum()), self.images.get(split)))
            lines += [
                f"{split} has {have:,} {what}, the published one {want:,}"
                for what, have, want in pairs
                if want is not None and have != want
            ]
        if self.each is not None and (odd := np.flatnonzero(rows != self.each)).size:
            told = few(f"{found.class_names[c]} {rows[c]}" for c in odd)
            lines.append(f"classes have other numbers of images than {self.each}: {told}")
        return tuple(lines)


def nothing(layout: str, places: Iterable[Path], problems: Iterable[str]) -> Content:
    """Files that cannot be used, with the reasons."""
    none = np.zeros(0, dtype=np.int64)
    return Content(
        layout=layout,
        places=tuple(places),
        form=ImageForm(1, 1, 1),
        class_names=(),
        of_row=none,
        split=none,
        blocks=unread,
        identity=(),
        problems=tuple(problems),
    )


def unread(context: Context) -> Iterator[np.ndarray]:
    """Images that were not looked for."""
    raise DataError("the images were not looked for")


def few(names: Iterable[object]) -> str:
    """The first names, and how many there are if not all are named."""
    all_of_them = [str(name) for name in names]
    told = ", ".join(all_of_them[:_NAMED])
    more = len(all_of_them) - _NAMED
    return f"{told} and {more:,} more" if more > 0 else told


def numbered(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct values, sorted, and the position of each value among them."""
    names = tuple(sorted(set(values)))
    position = {name: number for number, name in enumerate(names)}
    return names, np.array([position[value] for value in values], dtype=np.int64)


def identity_of(paths: Iterable[Path]) -> tuple[object, ...]:
    """Files as they stand: place, size and time of change."""
    facts = ((path, path.stat()) for path in paths)
    return tuple((str(path.resolve()), stat.st_size, stat.st_mtime_ns) for path, stat in facts)
