"""A pickle for each split, as miniImageNet, CIFAR-FS and FC100 are handed round. numpy alone.

Two forms: ``image_data`` [n, h, w, 3] with ``class_dict``, which lists the rows of each class; and
``data`` [n, h, w, 3] with ``labels`` [n], whose names, if there are any, are in ``label2catname``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from metaforge.components import Context
from metaforge.image_form import ImageForm
from metaforge.pickle_arrays import Array, BadPickle, as_text
from metaforge.pickles import read_pickle_file
from metaforge.split_names import SPLITS
from metaforge_fewshot_images.content import Content, few, identity_of, nothing

#: Images that are given at a time.
_BLOCK = 1024
_EXPECTED = (
    "expected a pickled dict of image_data [n, h, w, 3] and class_dict, or of data [n, h, w, 3] "
    "and labels [n]: copy the file again"
)


class _Part(NamedTuple):
    """A file: images [n, h, w, c], a view of it; the class of each row; names of classes."""

    images: np.ndarray
    of_row: np.ndarray
    class_names: tuple[str, ...]


def from_files(paths: Mapping[str, Path], layout: str) -> Content:
    """The files of the three splits, checked but for their pixels."""
    parts, problems = {}, []
    for split, path in paths.items():
        try:
            parts[split] = _part(read_pickle_file(path), split)
        except BadPickle as error:
            problems.append(f"{path}: {error}; {_EXPECTED}")
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}")
    problems += list(_disagreements(parts))
    places = tuple(paths.values())
    if problems:
        return nothing(layout, places, problems)
    return _content(parts, places, layout)


def _content(parts: Mapping[str, _Part], places: tuple[Path, ...], layout: str) -> Content:
    def blocks(context: Context) -> Iterator[np.ndarray]:
        for part in parts.values():
            for first in range(0, len(part.images), _BLOCK):
                some = part.images[first : first + _BLOCK]
                yield np.ascontiguousarray(some.transpose(0, 3, 1, 2))

    starts = np.cumsum([0, *(len(part.class_names) for part in parts.values())])
    of_row = [start + part.of_row for start, part in zip(starts, parts.values(), strict=False)]
    splits = [np.full(len(part.class_names), SPLITS.index(split)) for split, part in parts.items()]
    _, height, width, channels = next(iter(parts.values())).images.shape
    return Content(
        layout=layout,
        places=places,
        form=ImageForm(channels, height, width),
        class_names=tuple(name for part in parts.values() for name in part.class_names),
        of_row=np.concatenate(of_row),
        split=np.concatenate(splits),
        blocks=blocks,
        identity=identity_of(places),
    )


def _disagreements(parts: Mapping[str, _Part]) -> Iterator[str]:
    """What no file shows alone."""
    if len({part.images.shape[1:] for part in parts.values()}) > 1:
        told = ", ".join(f"{split} {part.images.shape[1:]}" for split, part in parts.items())
        yield f"the images of the splits differ in shape: {told}; take files of one release"
    of_split = {name: split for split, part in parts.items() for name in part.class_names}
    for split, part in parts.items():
        if common := [name for name in part.class_names if of_split[name] != split]:
            yield (
                f"classes are in the files of two splits, first {few(map(ascii, common))}; a class "
                "belongs to one split: take files of one release"
            )


def _part(found: Any, split: str) -> _Part:
    """Raises ``BadPickle`` for what is of neither form."""
    if type(found) is not dict:
        raise BadPickle(f"it holds a {type(found).__name__}")
    if "image_data" in found and "class_dict" in found:
        images = _images(found["image_data"], "image_data")
        return _Part(images, *_from_dict(found["class_dict"], len(images)))
    if "data" in found and "labels" in found:
        images = _images(found["data"], "data")
        labels = numbers(found["labels"], "labels", len(images))
        return _Part(images, *_from_labels(labels, found.get("label2catname"), split))
    raise BadPickle(f"it holds {few(map(ascii, found)) or 'nothing'}")


def _images(entry: Any, key: str) -> np.ndarray:
    images = entry.value if type(entry) is Array else None
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
        raise BadPickle(f"its {key} is no array of bytes [n, height, width, channels]")
    if images.shape[3] not in (1, 3):
        raise BadPickle(f"its images are of {images.shape[3]} channels, not 1 or 3")
    return images


def numbers(entry: Any, key: str, rows: int | None = None) -> np.ndarray:
    """The whole numbers of a list or an array, of which there must be ``rows``. Raises
    ``BadPickle``."""
    values = entry.value if type(entry) is Array else entry
    if not isinstance(values, list | np.ndarray):
        raise BadPickle(f"its {key} are no list")
    if isinstance(values, list) and not all(type(value) is int for value in values):
        raise BadPickle(f"its {key} are not whole numbers")
    found = np.array(values)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise BadPickle(f"its {key} are no list of whole numbers")
    if rows is not None and len(found) != rows:
        raise BadPickle(f"its {key} are {len(found):,} numbers, for {rows:,} images")
    return found.astype(np.int64)


def _from_dict(entry: Any, rows: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Classes by the rows that each has: every row is of one class."""
    if type(entry) is not dict or not entry:
        raise BadPickle("its class_dict is no dict of classes")
    of_row = np.full(rows, -1)
    names = tuple(str(name) for name in entry)
    for number, listed in enumerate(entry.values()):
        own = _rows(listed, names[number], rows)
        if (of_row[own] >= 0).any() or len(np.unique(own)) < len(own):
            raise BadPickle(f"class {names[number]!a} has a row that is listed twice")
        of_row[own] = number
    if (left := np.flatnonzero(of_row < 0)).size:
        raise BadPickle(f"{left.size:,} images are of no class, first row {left[0]}")
    return of_row, names


def _rows(listed: Any, name: str, rows: int) -> np.ndarray:
    own = numbers(listed, f"rows of class {name!a}")
    if not len(own) or own.min() < 0 or own.max() >= rows:
        raise BadPickle(f"class {name!a} has rows that are not among the {rows:,} images")
    return own


def _from_labels(labels: np.ndarray, named: Any, split: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Classes by numbers, which mean something within a split's file alone unless named."""
    values, of_row = np.unique(labels, return_inverse=True)
    if type(named) is not dict:
        return of_row, tuple(f"{split} {value}" for value in values)
    if absent := [value for value in values.tolist() if value not in named]:
        raise BadPickle(f"its label2catname lacks {few(absent)}")
    return of_row, tuple(as_text(named[value]) for value in values.tolist())


def files_of(
    folders: Sequence[Path], forms: Sequence[str], also: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Path]:
    """The files of the splits in the first folder that has one; nothing where none has.

    ``forms`` are names with ``{}`` for the split; ``also`` is another name of a file, which is
    taken where it is there."""
    for folder in folders:
        for form in forms:
            names = {split: form.format(split) for split in SPLITS}
            paths = {split: folder / name for split, name in names.items()}
            for split, name in names.items():
                if name in also and (folder / also[name]).is_file():
                    paths[split] = folder / also[name]
            if any(path.is_file() for path in paths.values()):
                return paths
    return {}
