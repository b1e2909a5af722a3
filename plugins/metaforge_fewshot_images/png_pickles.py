"""tieredImageNet as its authors gave it: for each split the PNG files in a pickle, and the labels.

``SPLIT_images_png.pkl`` is a list of the bytes of PNG files; ``SPLIT_images.npz`` has the array
``images`` [n, h, w, 3] in its place. ``SPLIT_labels.pkl`` is a dict of ``label_specific`` [n] (or
``labels``) and, where the superclasses are told, ``label_general`` [n], with the names of both in
``label_specific_str`` and ``label_general_str``. Numbers start anew in each split.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_files import image_blocks
from metaforge.image_form import ImageForm
from metaforge.npy_files import BROKEN, Header, read_header
from metaforge.pickle_arrays import Array, BadPickle, as_text
from metaforge.pickles import read_pickle_file
from metaforge.split_names import SPLITS
from metaforge_fewshot_images.blobs import Blobs
from metaforge_fewshot_images.content import Content, few, identity_of, nothing
from metaforge_fewshot_images.split_pickles import numbers

#: Images that are given at a time.
_BLOCK = 1024
_LAYOUT = "tieredImageNet's pickles"
_EXPECTED = "expected the file as its authors gave it: copy it again"


class _Labels(NamedTuple):
    """Of a split: the class of each row, names [C], group of each class or None, group names."""

    of_row: np.ndarray
    class_names: tuple[str, ...]
    groups: np.ndarray | None
    group_names: tuple[str, ...]


def from_files(folder: Path, form: ImageForm) -> Content:
    """The files of the three splits. The labels are read, of the images the length of their files
    alone: whether they are as many as labels is seen when they are read."""
    labels, images, problems = {}, {}, []
    for split in SPLITS:
        path = folder / f"{split}_labels.pkl"
        try:
            labels[split] = _labels(read_pickle_file(path), split)
        except BadPickle as error:
            problems.append(f"{path}: {error}; {_EXPECTED}")
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}")
        held = [folder / f"{split}_images_png.pkl", folder / f"{split}_images.npz"]
        found = [path for path in held if path.is_file()]
        if not found:
            problems.append(f"{folder} lacks {held[0].name}")
            continue
        images[split] = found[0]
        if found[0] == held[0] and not _ends(found[0]):
            problems.append(f"{found[0]} is cut short; copy it again")
    if problems:
        return nothing(_LAYOUT, (folder,), problems)
    return _content(labels, images, form, tuple(folder / f"{split}_labels.pkl" for split in SPLITS))


def _ends(path: Path) -> bool:
    """Whether a pickle ends as pickles do."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) == b"."


def _content(
    labels: Mapping[str, _Labels],
    images: Mapping[str, Path],
    form: ImageForm,
    label_files: tuple[Path, ...],
) -> Content:
    def blocks(context: Context) -> Iterator[np.ndarray]:
        for split, path in images.items():
            count = len(labels[split].of_row)
            read = _pngs if path.suffix == ".pkl" else _array
            yield from read(path, count, form, context)

    starts = np.cumsum([0, *(len(own.class_names) for own in labels.values())])
    of_row = [start + own.of_row for start, own in zip(starts, labels.values(), strict=False)]
    splits = [np.full(len(own.class_names), SPLITS.index(split)) for split, own in labels.items()]
    groups, group_names = _all_groups(labels)
    places = (*images.values(), *label_files)
    return Content(
        layout=_LAYOUT,
        places=places,
        form=form,
        class_names=tuple(name for own in labels.values() for name in own.class_names),
        of_row=np.concatenate(of_row),
        split=np.concatenate(splits),
        blocks=blocks,
        identity=(*identity_of(places), form),
        groups=groups,
        group_names=group_names,
        slow=True,
    )


def _all_groups(labels: Mapping[str, _Labels]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Groups of all classes, numbered through the splits; none if a split tells none."""
    found: list[np.ndarray] = []
    names: tuple[str, ...] = ()
    for own in labels.values():
        if own.groups is None:
            return None, ()
        found.append(len(names) + own.groups)
        names += own.group_names
    return np.concatenate(found), names


def _labels(found: Any, split: str) -> _Labels:
    """Raises ``BadPickle`` for what is not of this form."""
    if type(found) is not dict:
        raise BadPickle(f"it holds a {type(found).__name__}")
    key = "label_specific" if "label_specific" in found else "labels"
    if key not in found:
        raise BadPickle(f"it holds {few(map(ascii, found)) or 'nothing'}, and no label_specific")
    listed = numbers(found[key], key)
    values, of_row = np.unique(listed, return_inverse=True)
    names = _names(found.get("label_specific_str"), values, f"{split} class")
    if "label_general" not in found:
        return _Labels(of_row, names, None, ())
    general = numbers(found["label_general"], "label_general", len(listed))
    group_values, of_group = np.unique(general, return_inverse=True)
    groups = np.full(len(values), -1)
    groups[of_row] = of_group
    if (groups[of_row] != of_group).any():
        raise BadPickle("images of one class are of several superclasses")
    group_names = _names(found.get("label_general_str"), group_values, f"{split} superclass")
    return _Labels(of_row, names, groups, group_names)


def _names(entry: Any, values: np.ndarray, otherwise: str) -> tuple[str, ...]:
    """A name for each number: positions in the names that are told, if they are."""
    listed = entry.value if type(entry) is Array else entry
    told = listed.tolist() if isinstance(listed, np.ndarray) else listed
    if not isinstance(told, list):
        return tuple(f"{otherwise} {value}" for value in values)
    if values.min() < 0 or values.max() >= len(told):
        raise BadPickle(
            f"it has {len(told)} names, and numbers from {values.min()} to {values.max()}"
        )
    return tuple(as_text(told[value]) for value in values)


def _pngs(path: Path, count: int, form: ImageForm, context: Context) -> Iterator[np.ndarray]:
    try:
        found = read_pickle_file(path)
    except BadPickle as error:
        raise DataError(f"{path}: {error}; {_EXPECTED}") from None
    items = found.value if type(found) is Array else found
    if not isinstance(items, list | tuple) or len(items) != count:
        held = f"{len(items):,} images" if isinstance(items, list | tuple) else "no list of images"
        raise DataError(f"{path}: it holds {held}, its labels are {count:,}; {_EXPECTED}")
    # what is read as a file is the bytes of one
    blobs = cast(Path, Blobs(str(path), lambda row: _bytes(items[int(row)])))
    yield from image_blocks(blobs, [str(row) for row in range(count)], form, context)


def _bytes(item: Any) -> bytes | memoryview:
    if type(item) is Array and isinstance(item.value, np.ndarray) and item.value.dtype == np.uint8:
        return item.value.tobytes()
    if isinstance(item, bytes | memoryview):
        return item
    raise OSError(0, "it is not the bytes of an image")


def _array(path: Path, count: int, form: ImageForm, context: Context) -> Iterator[np.ndarray]:
    """The array ``images`` of an npz file, some rows at a time."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("images.npy") as member:
            header = read_header(member)
            if problem := _unfit(header, count, form):
                raise DataError(f"{path}: {problem}")
            size = prod(header.shape[1:])
            with context.progress(f"reading {path.name}", count) as advance:
                for first in range(0, count, _BLOCK):
                    rows = min(_BLOCK, count - first)
                    data = np.frombuffer(member.read(rows * size), np.uint8)
                    some = data.reshape(rows, *header.shape[1:])
                    yield np.ascontiguousarray(some.transpose(0, 3, 1, 2))
                    advance(rows)
    except BROKEN as error:
        raise DataError(f"{path} is damaged, or has no array images ({error})") from error


def _unfit(header: Header, count: int, form: ImageForm) -> str:
    shape = (count, form.height, form.width, form.channels)
    if header.shape != shape or header.dtype != np.uint8 or header.fortran:
        return (
            f"images are {list(header.shape)} of {header.dtype}; expected {list(shape)} of uint8, "
            "as there are labels and as size says"
        )
    return ""
