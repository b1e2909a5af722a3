"""Images that ``metaforge embed`` reads, in order, with what is known of each: of a folder of
files, of arrays in files, of a data set."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError, PluginError
from metaforge.image_files import ImageForm, common_form, image_blocks, list_images
from metaforge.labelled_images import LabelledImages, LabelledSource
from metaforge.npy_files import BROKEN, read_file, read_member
from metaforge.split_names import MEANINGS, SPLITS

#: Names that the images have in files of arrays, and the columns beside them.
_IMAGES, _COLUMNS = ("X", "x", "images"), ("y", "split", "group", "files", "sample_group")
#: Rows that a message names.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class Inputs:
    """n images.

    shape    of an image, [c, h, w]
    columns  what is known of them, by name, [n] each: ``y`` (the class), ``split``, ``group``,
             ``files``, ``sample_group``, further labels
    read     gives the images of some stretches in order, [k, c, h, w] each, as bytes or floats in
             [0, 1]; may raise ``DataError`` with all that cannot be read
    digest   names the content of a stretch
    """

    count: int
    shape: tuple[int, ...]
    columns: dict[str, np.ndarray]
    read: Callable[[Sequence[range]], Iterator[Tensor]]
    digest: Callable[[range], str]


def of_folder(root: Path, wanted: ImageForm | None, context: Context) -> Inputs:
    """The image files of a folder, in the form that is wanted, or else the most common.

    Raises ``DataError`` with everything wrong with the folder.
    """
    listing = list_images(root)
    if listing.problems:
        raise DataError("\n".join(listing.problems))
    for line in listing.remarks:
        context.report(line)
    files = listing.files
    form = wanted or common_form(root, files, context)
    unseen = replace(context, progress=Context().progress)
    columns = {"files": np.array(files)}
    if listing.classes and None not in listing.classes:
        columns["y"] = np.array(listing.classes)
    if listing.splits is not None:
        columns["split"] = np.array(listing.splits)

    def read(stretches: Sequence[range]) -> Iterator[Tensor]:
        names = [files[i] for stretch in stretches for i in stretch]
        blocks = image_blocks(root, names, form, unseen)  # within the progress of what it is for
        return _regrouped(blocks, list(map(len, stretches)))

    def digest(stretch: range) -> str:
        return repr((form, [(files[i], listing.stats[i]) for i in stretch]))

    return Inputs(len(files), form.shape, columns, read, digest)


def _regrouped(blocks: Iterator[np.ndarray], sizes: Sequence[int]) -> Iterator[Tensor]:
    """Blocks of images as others of these sizes."""
    held: list[np.ndarray] = []
    for size in sizes:
        while sum(map(len, held)) < size:
            held.append(next(blocks))
        joined = np.concatenate(held)
        yield torch.from_numpy(joined[:size])
        held = [joined[size:]]
    for _ in blocks:  # to its end, where it raises what it found
        pass


def of_arrays(path: Path) -> Inputs:
    """The images of an npz file or of a folder of npy files: the array ``X``, or the only one that
    holds images, [n, h, w], [n, c, h, w] or [n, h, w, c], bytes or floats in [0, 1].

    ``y``, ``split``, ``group``, ``files`` and ``sample_group`` [n] go with them. Raises
    ``DataError`` with everything wrong with the arrays.
    """
    arrays = _read_arrays(path)
    named = [name for name in _IMAGES if name in arrays]
    found = named or [name for name, array in arrays.items() if array.ndim in (3, 4)]
    if len(found) != 1 or arrays[found[0]].ndim not in (3, 4):
        told = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise DataError(
            f"{path}: holds {told or 'no array'}; expected images X, [n, h, w], [n, c, h, w] or "
            "[n, h, w, c], with labels y [n] if there are any"
        )
    images = _images(path, found[0], arrays.pop(found[0]))
    columns, problems = {}, []
    for name in _COLUMNS:
        if name in arrays:
            try:
                columns[name] = _column(name, arrays[name], len(images))
            except ValueError as error:
                problems.append(f"{path}: {name} {error}")
    if problems:
        raise DataError("\n".join(problems))
    content = torch.from_numpy(images)

    def digest(stretch: range) -> str:
        some = images[stretch.start : stretch.stop]
        return f"{images.dtype} {hashlib.blake2b(some.tobytes()).hexdigest()}"

    def read(stretches: Sequence[range]) -> Iterator[Tensor]:
        return (content[stretch.start : stretch.stop] for stretch in stretches)

    return Inputs(len(images), images.shape[1:], columns, read, digest)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        if path.is_dir():
            return {file.stem: read_file(file) for file in sorted(path.glob("*.npy"))}
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
        names = [name.removesuffix(".npy") for name in names]
        return {name: read_member(path, name) for name in names}
    except BROKEN as error:
        raise DataError(
            f"{path}: cannot be read as numpy's arrays ({error}); expected a whole npz file, or a "
            "folder of npy files, of numbers and strings"
        ) from error


def _images(path: Path, name: str, given: np.ndarray) -> np.ndarray:
    """[n, c, h, w], bytes or floats in [0, 1]."""
    if given.dtype != np.uint8 and given.dtype.kind not in "fb":
        raise DataError(
            f"{path}: {name} has dtype {given.dtype}; expected bytes (uint8), or floats in [0, 1]"
        )
    if not given.size:
        raise DataError(f"{path}: {name} has shape {list(given.shape)}: no image in it")
    images = given[:, None] if given.ndim == 3 else given
    if images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if images.dtype.kind != "u":
        flat = images.reshape(len(images), -1)
        bad = np.flatnonzero(~((flat >= 0) & (flat <= 1)).all(1))
        if len(bad):
            raise DataError(
                f"{path}: {len(bad)} images of {name} hold numbers beyond [0, 1], or NaN, first "
                f"{', '.join(map(str, bad[:_NAMED]))}: give bytes (uint8), or divide"
            )
        images = images.astype(np.float32)
    return np.ascontiguousarray(images)


def _column(name: str, given: np.ndarray, count: int) -> np.ndarray:
    """A column of text. Raises ``ValueError`` with what is wrong with it."""
    if given.shape != (count,):
        raise ValueError(f"has shape {list(given.shape)}, and there are {count} images")
    if given.dtype.kind == "f":
        if not np.isfinite(given).all() or (given != np.round(given)).any():
            raise ValueError("holds numbers that are not whole; expected names, or whole numbers")
        given = given.astype(np.int64)
    text = given.astype(str)
    if name != "split":
        return text
    unknown = sorted({word for word in text.tolist() if word.lower() not in MEANINGS})
    if unknown:
        raise ValueError(f"holds {', '.join(unknown[:_NAMED])}; expected train, val, test")
    return np.array([SPLITS[MEANINGS[word.lower()]] for word in text.tolist()])


def of_source(source: Any, name: str) -> Inputs:
    """The images of a data set, each split's in turn, under its first label as ``y``.

    Raises ``PluginError`` for a data set that has none to show, and ``DataError`` where its
    samples are no images.
    """
    if not isinstance(source, LabelledSource):
        raise PluginError(f"data set {name!r} shows no images with labels (labelled_images)")
    parts = [source.labelled_images(split) for split in SPLITS]
    starts = np.cumsum([0, *map(len, parts)])
    columns = {"split": np.repeat(np.array(SPLITS), np.diff(starts))}
    for position, label in enumerate(parts[0].labels):
        told = np.concatenate([_told(part, label) for part in parts])
        columns["y" if position == 0 else label] = told
    if all(part.sample_names is not None for part in parts):
        columns["files"] = np.concatenate([_files(part) for part in parts])
    groups = [part.sample_groups for part in parts]
    if all(some is not None for some in groups):
        columns["sample_group"] = torch.cat(groups).cpu().numpy()  # type: ignore[arg-type]

    def read(stretches: Sequence[range]) -> Iterator[Tensor]:
        for stretch in stretches:
            pieces = []
            for part, first in zip(parts, starts[:-1].tolist(), strict=True):
                low, high = max(stretch.start, first), min(stretch.stop, first + len(part))
                if low < high:
                    pieces.append(part.inputs(torch.arange(low - first, high - first)))
            yield torch.cat(pieces)

    def digest(stretch: range) -> str:
        return f"{source.fingerprint} {stretch}"

    return Inputs(int(starts[-1]), parts[0].shape, columns, read, digest)


def _told(images: LabelledImages, label: str) -> np.ndarray:
    """The names of a label's values; its number where there is no name, nothing for -1."""
    values = images.labels[label].cpu().numpy()
    names = images.names.get(label)
    words = [("" if v < 0 else names[v] if names else str(v)) for v in values.tolist()]
    return np.array(words)


def _files(images: LabelledImages) -> np.ndarray:
    assert images.sample_names is not None
    rows = range(len(images)) if images.rows is None else images.rows.tolist()
    return np.array([images.sample_names[row] for row in rows])
