"""CIFAR-100's own files for Python, in a folder or in the archive that is offered. numpy alone.

The rows of ``train`` come first, then those of ``test``; the few-shot splits are of classes, so
that both serve. ``meta`` is not read: it holds the class names, which are known.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaforge.components import Context
from metaforge.image_form import ImageForm
from metaforge.pickle_arrays import Array, BadPickle, as_text
from metaforge.pickles import read_pickle, read_pickle_file
from metaforge.split_names import SPLITS
from metaforge_fewshot_images.cifar_names import CLASSES, SUPERCLASS_OF, SUPERCLASSES, split_of
from metaforge_fewshot_images.content import Content, few, identity_of, nothing, unread
from metaforge_fewshot_images.split_pickles import numbers

#: The archive's name, its folder, and its size in bytes as it is offered.
ARCHIVE, FOLDER, SIZE = "cifar-100-python.tar.gz", "cifar-100-python", 169_001_437
#: Its files, with the number of images in each.
ROWS = {"train": 50_000, "test": 10_000}
FORM = ImageForm(3, 32, 32)

#: A whole archive has whole records of so many bytes.
_RECORD = 512
#: Bytes, of which the published archive unpacks to 187 million.
_MOST = 1 << 30
#: Images that are given at a time.
_BLOCK = 4096
_GROUP_OF = np.array([list(SUPERCLASSES).index(SUPERCLASS_OF[label]) for label in CLASSES])
_EXPECTED = "expected CIFAR-100's version for Python as it is offered: get the archive again"
_BROKEN = (tarfile.TarError, zlib.error, EOFError, OSError)


class _Part(NamedTuple):
    """One file: classes [n], names [n], and the images [n, 3072], a view of the file."""

    fine: np.ndarray
    names: tuple[str, ...]
    pixels: np.ndarray


def from_folder(folder: Path, name: str) -> Content:
    """The two files of a folder, checked but for their pixels."""
    paths = tuple(folder / part for part in ROWS)
    layout = "CIFAR-100's files for Python"
    if absent := [path.name for path in paths if not path.is_file()]:
        return nothing(layout, paths, [f"{folder} lacks {', '.join(absent)}"])
    parts, problems = [], []
    for path in paths:
        try:
            parts.append(_part(read_pickle_file(path), path.name))
        except (BadPickle, OSError) as error:
            problems.append(f"{path}: {_told(error)}; {_EXPECTED}")
    if problems:
        return nothing(layout, paths, problems)
    return _content(layout, paths, name, parts)


def from_archive(path: Path, name: str, unpack: bool) -> Content:
    """The archive, unpacked in memory. Without ``unpack`` it is only seen whether it can be whole,
    and the images of each class are counted as they are known to be."""
    layout = "CIFAR-100's archive for Python"
    if problem := _cut_short(path):
        return nothing(layout, (path,), [f"{path}: {problem}; get it again"])
    if not unpack:
        return _as_published(layout, (path,), name)
    try:
        held = _unpacked(path)
        if absent := [part for part in ROWS if part not in held]:
            raise BadPickle(f"it holds no file {', '.join(absent)}")
        parts = [_part(read_pickle(memoryview(held[part])), part) for part in ROWS]
    except (BadPickle, *_BROKEN) as error:
        return nothing(layout, (path,), [f"{path}: {_told(error)}; {_EXPECTED}"])
    return _content(layout, (path,), name, parts)


def _unpacked(path: Path) -> dict[str, bytes]:
    """The two files, in one pass and to the end, where the archive's own sum is checked."""
    held = {}
    with gzip.open(path) as content:
        with tarfile.open(fileobj=content, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.size > _MOST:
                    raise BadPickle(f"{name[:40]!a} claims {member.size:,} bytes")
                if name in ROWS and (file := archive.extractfile(member)) is not None:
                    held[name] = file.read()
        while content.read(_RECORD << 10):
            if content.tell() > _MOST:
                raise BadPickle(f"it unpacks to more than {_MOST:,} bytes")
    return held


def _cut_short(path: Path) -> str:
    """Why the archive cannot be whole, or nothing. What it would unpack to stands at its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(-min(4, size), os.SEEK_END)
        end = int.from_bytes(file.read(4), "little")
    if start != b"\x1f\x8b":
        return f"begins with {start!r}, not as a gzip archive does"
    if end % _RECORD:
        return f"is cut short: {size:,} bytes; the one that is offered has {SIZE:,}"
    return ""


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    return str(error) or type(error).__name__


def _part(found: Any, part: str) -> _Part:
    """Raises ``BadPickle`` for what is not CIFAR-100's, or not whole."""
    if type(found) is not dict:
        raise BadPickle(f"it holds a {type(found).__name__}")
    wanted = ("data", "fine_labels", "coarse_labels", "filenames")
    if absent := [key for key in wanted if key not in found]:
        raise BadPickle(f"it lacks {', '.join(absent)}; it holds {few(map(ascii, found))}")
    fine = _labels(found, "fine_labels", ROWS[part], len(CLASSES))
    coarse = _labels(found, "coarse_labels", ROWS[part], len(SUPERCLASSES))
    if (wrong := np.flatnonzero(_GROUP_OF[fine] != coarse)).size:
        raise BadPickle(
            f"{wrong.size:,} images have a superclass that is not their class's, first {wrong[0]}"
        )
    names = found["filenames"]
    if type(names) is not list or len(names) != ROWS[part]:
        raise BadPickle("it has no name for each image")
    pixels = found["data"].value if type(found["data"]) is Array else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise BadPickle("its data are no table of bytes")
    if pixels.shape != (ROWS[part], np.prod(FORM.shape)):
        raise BadPickle(
            f"it has images [{pixels.shape[0]:,}, {pixels.shape[1]:,}], "
            f"CIFAR-100's own [{ROWS[part]:,}, {np.prod(FORM.shape):,}]"
        )
    return _Part(fine, tuple(f"{part}/{as_text(name)}" for name in names), pixels)


def _labels(found: Any, key: str, rows: int, count: int) -> np.ndarray:
    labels = numbers(found[key], key, rows)
    if labels.min() < 0 or labels.max() >= count:
        raise BadPickle(
            f"its {key} run from {labels.min()} to {labels.max()}, not 0 to {count - 1}"
        )
    return labels


def _content(layout: str, places: tuple[Path, ...], name: str, parts: list[_Part]) -> Content:
    def blocks(context: Context) -> Iterator[np.ndarray]:
        for part in parts:
            for first in range(0, len(part.pixels), _BLOCK):
                yield part.pixels[first : first + _BLOCK].reshape(-1, *FORM.shape)

    of_row = np.concatenate([part.fine for part in parts])
    made = _as_published(layout, places, name, of_row)
    names = tuple(name for part in parts for name in part.names)
    return replace(made, blocks=blocks, names=names)


def _as_published(
    layout: str, places: tuple[Path, ...], name: str, of_row: np.ndarray | None = None
) -> Content:
    """Without the images; of classes that are not known, as many as CIFAR-100 has."""
    if of_row is None:
        of_row = np.tile(np.arange(len(CLASSES)), sum(ROWS.values()) // len(CLASSES))
    split = split_of(name)
    return Content(
        layout=layout,
        places=places,
        form=FORM,
        class_names=CLASSES,
        of_row=of_row,
        split=np.array([SPLITS.index(split[label]) for label in CLASSES]),
        blocks=unread,
        identity=identity_of(path for path in places if path.exists()),
        groups=_GROUP_OF,
        group_names=tuple(SUPERCLASSES),
    )
