"""A user's samples from files: folders of images, single images, tables, npz files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.array_files import Arrays
from metaforge.components import Context
from metaforge.embedded import EMBEDDED, embedded
from metaforge.errors import DataError
from metaforge.preprocess import BrokenSamples, Preprocess

TABLES = (".csv", ".tsv", ".parquet")
#: Columns that hold labels, and those that name samples, where none is named.
LABELS, NAMES = ("label", "class", "y"), ("file", "files", "name", "id")
#: Things that a message lists.
_LISTED = 20


@dataclass(frozen=True, eq=False)
class Samples:
    """Raw samples of one input.

    names   of each, the file or the row
    values  [n, *x] as ``Preprocess`` takes them
    labels  [n] or None; of regression [n] or [n, d]
    columns of a table, the names of the numbers
    place   where they were read, for messages
    """

    names: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None
    remarks: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    place: str = ""

    @contextmanager
    def named(self) -> Iterator[None]:
        """Within, ``DataError`` for samples that cannot be used names them all, and the place."""
        where = f"{self.place}: " if self.place else ""
        try:
            yield
        except BrokenSamples as error:
            told = listed([self.names[row] for row in error.rows])
            raise DataError(f"{where}{len(error.rows)} samples {error.why}: {told}") from error
        except DataError as error:
            raise DataError(f"{where}{error}") from error


def listed(names: Sequence[str]) -> str:
    """Names, the first of many."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def read(path: Path, preprocess: Preprocess, context: Context, label: str | None = None) -> Samples:
    """The samples of a folder of images (of classes, where they lie in folders), an image, a
    table or an npz file of ``X`` and ``y``.

    ``label`` names a table's column or a file's array of labels; by default it is the first of
    ``label``, ``class`` and ``y`` that there is. Raises ``DataError`` that lists all that is
    wrong with an input.
    """
    if path.is_dir():
        if label is not None:
            raise DataError(f"{path}: images have their folders' names as labels: drop --label")
        return _folder(path, preprocess, context)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.suffix.lower() in TABLES:
        return _table(path, label, preprocess.columns)
    if path.suffix.lower() == ".npz":
        return _npz(path, preprocess, label)
    one = _images(path.parent, [path.name], (None,), preprocess, context)
    return Samples((str(path),), one.values, None)


def read_all(
    paths: Sequence[Path],
    preprocess: Preprocess,
    context: Context,
    label: str | None = None,
) -> list[Samples]:
    """``read`` of each. Raises one ``DataError`` that lists what is wrong with all."""
    found, wrong = [], []
    for path in paths:
        try:
            one = read(path, preprocess, context, label)
        except DataError as error:
            wrong.append(str(error))
            continue
        prefix = f"{path}/" if path.is_dir() else f"{path}: " if len(one.names) > 1 else ""
        names = tuple(f"{prefix}{name}" for name in one.names) if len(paths) > 1 else one.names
        found.append(replace(one, names=names, place=str(path)))
    if wrong:
        raise DataError("\n".join(wrong))
    return found


def support(
    path: Path, preprocess: Preprocess, context: Context, label: str | None = None
) -> Samples:
    """``read`` of labelled samples, none of which is in two classes. Raises ``DataError``."""
    found = read(path, preprocess, context, label)
    if found.labels is None:
        raise DataError(
            f"{path}: has no labels; expected a folder for each class, a table with a column of "
            "labels (--label NAME), or an npz file with X and y"
        )
    real = found.labels.dtype.kind == "f" and bool((found.labels % 1 != 0).any())
    if found.labels.ndim == 1 and not real:
        _refuse_contradictions(path, found)
    return found


def _refuse_contradictions(path: Path, found: Samples) -> None:
    """``DataError`` with all samples that are alike and of unlike classes."""
    assert found.labels is not None
    first: dict[bytes, int] = {}
    wrong = []
    for row, value in enumerate(found.values):
        before = first.setdefault(value.tobytes(), row)
        if found.labels[before] != found.labels[row]:
            wrong.append(
                f"{found.names[before]} ({found.labels[before]}) and {found.names[row]} "
                f"({found.labels[row]})"
            )
    if wrong:
        raise DataError(
            f"{path}: {len(wrong)} samples are in two classes; leave them in one: {listed(wrong)}"
        )


def _folder(path: Path, preprocess: Preprocess, context: Context) -> Samples:
    from metaforge.image_listing import list_images

    found, wrong = list_images(path), list[str]()
    if found.splits is not None:
        raise DataError(
            f"{path}: holds splits ({', '.join(sorted(set(found.splits)))}), which are not to be "
            f"mixed: give the folder of one, such as {path / 'train'}"
        )
    try:
        samples = _images(path, found.files, found.classes, preprocess, context)
    except DataError as error:
        wrong.append(str(error))
    if found.problems or wrong:
        raise DataError("\n".join([*found.problems, *wrong]))
    return replace(samples, remarks=found.remarks)


def _images(
    root: Path,
    files: Sequence[str],
    classes: Sequence[str | None],
    preprocess: Preprocess,
    context: Context,
) -> Samples:
    from metaforge.image_files import read_images

    if preprocess.images is None:
        raise DataError(
            f"{root / files[0] if files else root}: images, and the learner takes none: expected "
            f"{preprocess.expected}, as a table or an npz file"
        )
    values = read_images(root, files, preprocess.images, context)
    whole = classes and all(one is not None for one in classes)
    labels = np.array(classes, dtype=str) if whole else None
    return Samples(tuple(map(os.fspath, files)), values, labels)


def _table(path: Path, label: str | None, known: Sequence[str] | None) -> Samples:
    """``known`` are the columns that the learner has learned from, if it knows their names: they
    are taken by these, in that order."""
    from metaforge.table_files import column_names, read_table

    there = column_names(path)
    free = [name for name in there if name not in (known or ())]
    chosen = label or next((name for name in LABELS if name in free), None)
    names = next((name for name in NAMES if name in free and name != chosen), None)
    missing = [name for name in (chosen, *(known or ())) if name not in (None, *there)]
    if missing:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, missing))}; it has {listed(there)}"
        )
    text = [name for name in (chosen, names) if name is not None]
    columns = dict(read_table(path, [*text, *known] if known else None, text).columns)
    labels = columns.pop(chosen) if chosen is not None else None
    told = columns.pop(names) if names is not None else None
    wrong = [f"{name!r}" for name, values in columns.items() if values.dtype.kind not in "iuf"]
    if wrong or not columns:
        raise DataError(
            f"{path}: {'columns of text: ' + listed(wrong) if wrong else 'no columns of numbers'}; "
            "expected numbers in all columns but that of labels (--label NAME) and of names "
            f"({', '.join(NAMES)})"
        )
    taken = tuple(known or columns)
    values = np.column_stack([columns[name] for name in taken])
    rows = map(str, told) if told is not None else (f"row {i + 1}" for i in range(len(values)))
    others = [name for name in free if name not in text] if known else []
    remarks = (f"{path}: columns that are not used: {listed(others)}",) if others else ()
    return Samples(tuple(rows), values, labels, remarks, taken)


def _npz(path: Path, preprocess: Preprocess, label: str | None) -> Samples:
    arrays = Arrays(path)
    chosen = label or next((name for name in LABELS if name in arrays.names), None)
    wanted = [name for name in (EMBEDDED, chosen) if name is not None]
    if lines := arrays.missing({name: name for name in wanted}):
        raise DataError("\n".join(lines))
    values = arrays.get(EMBEDDED, EMBEDDED)
    beside = {name: arrays.get(name, name) for name in (chosen, "files") if name in arrays.names}
    for name, array in beside.items():
        if array.shape[:1] != values.shape[:1]:
            raise DataError(
                f"{path}: X has shape {list(values.shape)}, {name} {list(array.shape)}; expected "
                "one for each row"
            )
    labels = None if chosen is None else beside[chosen]
    if labels is not None and labels.dtype.kind not in "biufU":
        raise DataError(f"{path}: {chosen} has dtype {labels.dtype}; expected numbers or texts")
    remarks = refuse_other_features(path, embedded(arrays), preprocess)
    names = map(str, beside["files"]) if "files" in beside else None
    rows = names or (f"row {i}" for i in range(len(values)))
    return Samples(tuple(rows), values, labels, remarks)


def refuse_other_features(
    path: Path, origin: dict[str, Any] | None, preprocess: Preprocess
) -> tuple[str, ...]:
    """``DataError`` for features of another backbone than the learner's; remarks."""
    if preprocess.backbone is None or preprocess.backbone_fingerprint is None:
        return ()
    own = f"{preprocess.backbone['use']}, weights {preprocess.backbone_fingerprint[:12]}"
    if origin is None:
        return (f"{path} does not say what made its features; the learner's are of {own}",)
    if origin["backbone_fingerprint"] != preprocess.backbone_fingerprint:
        raise DataError(
            f"{path}: features of the backbone {origin['backbone']['use']}, weights "
            f"{origin['backbone_fingerprint'][:12]}; the learner's are of {own}: make them anew "
            f"with that one (metaforge embed --backbone {preprocess.backbone['use']}), or give "
            "the images"
        )
    return ()
