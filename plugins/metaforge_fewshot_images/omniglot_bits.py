"""Omniglot as packed bits: an npz file of images of 28 x 28. numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_form import ImageForm
from metaforge_arrays.files import Arrays
from metaforge_fewshot_images.content import Content, identity_of, numbered
from metaforge_fewshot_images.omniglot_files import Found, unusable

PACKED = "omniglot28_bits.npz"
#: Side of an image.
SIDE = 28

_BLOCK = 4096
_ARRAYS = ("Xbits", "y", "drawer", "class_names", "class_lake_set")


def from_packed(path: Path, size: int, invert: bool) -> Found:
    """Bits of images of 28 x 28, 1 for ink, with Lake's and Vinyals' divisions."""
    layout = "Omniglot's packed bits"
    try:
        arrays = Arrays(path)
        if missing := arrays.missing({name: name for name in _ARRAYS}):
            return unusable(layout, (path,), missing)
        bits, y, drawer, names, lake = (arrays.get(name, name) for name in _ARRAYS)
        vinyals = None
        if "class_vinyals_split" in arrays.names:
            vinyals = arrays.get("split", "class_vinyals_split").astype(np.int64)
    except DataError as error:
        return unusable(layout, (path,), [str(error).removeprefix("arrays: ")])
    problems = list(_odd_lengths(path, bits, y, drawer, names, lake))
    if size != SIDE:
        problems.append(
            f"{path} has images of {SIDE} x {SIDE}, and size is {size}: set size: {SIDE}, or "
            "place Omniglot's archives"
        )
    if problems:
        return unusable(layout, (path,), problems)
    by_name = np.argsort(names, kind="stable")
    of_row = np.argsort(by_name)[y]
    order = np.lexsort((drawer, of_row))

    def blocks(context: Context) -> Iterator[np.ndarray]:
        for first in range(0, len(order), _BLOCK):
            some = np.unpackbits(bits[order[first : first + _BLOCK]], axis=1)[:, : SIDE * SIDE]
            ink = some.reshape(-1, 1, SIDE, SIDE) * np.uint8(255)
            yield ink if invert else 255 - ink

    labels = tuple(map(str, names[by_name]))
    alphabets, groups = numbered([label.split("/")[0] for label in labels])
    content = Content(
        layout=layout,
        places=(path,),
        form=ImageForm(1, SIDE, SIDE),
        class_names=labels,
        of_row=of_row[order],
        split=np.full(len(labels), -1),
        blocks=blocks,
        identity=(*identity_of((path,)), invert),
        groups=groups,
        group_names=alphabets,
        drawers=drawer[order].astype(np.int64),
        names=[
            f"{labels[label]}/{by}"
            for label, by in zip(of_row[order].tolist(), drawer[order].tolist(), strict=True)
        ],
    )
    return Found(
        content,
        lake[by_name].astype(np.int64),
        None if vinyals is None else vinyals[by_name],
    )


def _odd_lengths(
    path: Path,
    bits: np.ndarray,
    y: np.ndarray,
    drawer: np.ndarray,
    names: np.ndarray,
    lake: np.ndarray,
) -> Iterator[str]:
    rows = len(bits)
    if bits.shape != (rows, -(-SIDE * SIDE // 8)) or bits.dtype != np.uint8:
        yield f"{path}: Xbits is {list(bits.shape)} of {bits.dtype}; expected uint8 [n, 98]"
    if y.shape != (rows,) or drawer.shape != (rows,):
        yield f"{path}: y and drawer must have one number for each of the {rows:,} images"
    elif y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= len(names):
        yield f"{path}: y must be positions in the {len(names):,} class_names"
    if lake.shape != names.shape or names.dtype.kind != "U":
        yield f"{path}: class_lake_set and class_names must have an entry for each class"
