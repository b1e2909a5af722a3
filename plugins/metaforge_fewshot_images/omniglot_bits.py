"""Omniglot as packed bits: an npz file of images of 28 x 28. numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metaforge.array_files import Arrays
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_form import ImageForm
from metaforge_fewshot_images.content import Content, identity_of, numbered
from metaforge_fewshot_images.omniglot_files import Found, unusable

PACKED = "omniglot28_bits.npz"
#: Side of an image.
SIDE = 28

_BLOCK = 4096
_LAYOUT = "Omniglot's packed bits"
_ARRAYS = ("Xbits", "y", "drawer", "class_names", "class_lake_set")


class _Packed(NamedTuple):
    """Arrays of the file: bits [n, 98], class and drawer [n], names and Lake's set [C], and the
    position of Vinyals' split [C] or None."""

    bits: np.ndarray
    y: np.ndarray
    drawer: np.ndarray
    names: np.ndarray
    lake: np.ndarray
    vinyals: np.ndarray | None


def from_packed(path: Path, size: int, invert: bool) -> Found:
    """Bits of images of 28 x 28, 1 for ink, with Lake's and Vinyals' divisions."""
    try:
        packed = _read(path)
    except DataError as error:
        lines = str(error).removeprefix("arrays: ").splitlines()
        return unusable(_LAYOUT, (path,), lines)
    problems = list(_odd_lengths(path, packed))
    if size != SIDE:
        problems.append(
            f"{path} has images of {SIDE} x {SIDE}, and size is {size}: set size: {SIDE}, or "
            "place Omniglot's archives"
        )
    if problems:
        return unusable(_LAYOUT, (path,), problems)
    by_name = np.argsort(packed.names, kind="stable")
    vinyals = None if packed.vinyals is None else packed.vinyals[by_name]
    lake = packed.lake[by_name].astype(np.int64)
    return Found(_content(path, packed, by_name, invert), lake, vinyals)


def _read(path: Path) -> _Packed:
    """Raises ``DataError`` for arrays that are not there, or damaged."""
    arrays = Arrays(path)
    if missing := arrays.missing({name: name for name in _ARRAYS}):
        raise DataError("\n".join(missing))
    vinyals = None
    if "class_vinyals_split" in arrays.names:
        vinyals = arrays.get("split", "class_vinyals_split").astype(np.int64)
    bits, y, drawer, names, lake = (arrays.get(name, name) for name in _ARRAYS)
    return _Packed(bits, y, drawer, names, lake, vinyals)


def _content(path: Path, packed: _Packed, by_name: np.ndarray, invert: bool) -> Content:
    """Classes by their names, and their images by drawer."""
    of_row = np.argsort(by_name)[packed.y]
    order = np.lexsort((packed.drawer, of_row))
    labels = tuple(map(str, packed.names[by_name]))
    alphabets, groups = numbered([label.split("/")[0] for label in labels])
    drawers = packed.drawer[order].astype(np.int64)

    def blocks(context: Context) -> Iterator[np.ndarray]:
        for first in range(0, len(order), _BLOCK):
            rows = packed.bits[order[first : first + _BLOCK]]
            ink = np.unpackbits(rows, axis=1)[:, : SIDE * SIDE] * np.uint8(255)
            yield (ink if invert else 255 - ink).reshape(-1, 1, SIDE, SIDE)

    rows = zip(of_row[order].tolist(), drawers.tolist(), strict=True)
    return Content(
        layout=_LAYOUT,
        places=(path,),
        form=ImageForm(1, SIDE, SIDE),
        class_names=labels,
        of_row=of_row[order],
        split=np.full(len(labels), -1),
        blocks=blocks,
        identity=(*identity_of((path,)), invert),
        groups=groups,
        group_names=alphabets,
        drawers=drawers,
        names=[f"{labels[label]}/{by}" for label, by in rows],
    )


def _odd_lengths(path: Path, packed: _Packed) -> Iterator[str]:
    bits, y, drawer, names, lake, vinyals = packed
    rows = len(bits)
    if bits.shape != (rows, -(-SIDE * SIDE // 8)) or bits.dtype != np.uint8:
        yield f"{path}: Xbits is {list(bits.shape)} of {bits.dtype}; expected uint8 [n, 98]"
    if y.shape != (rows,) or drawer.shape != (rows,):
        yield f"{path}: y and drawer must have one number for each of the {rows:,} images"
    elif y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= len(names):
        yield f"{path}: y must be positions in the {len(names):,} class_names"
    if lake.shape != names.shape or names.dtype.kind != "U":
        yield f"{path}: class_lake_set and class_names must have an entry for each class"
    if vinyals is not None and vinyals.shape != names.shape:
        yield f"{path}: class_vinyals_split must have an entry for each class"
