"""Data sets that a user has in Python, as arrays; and kept as files, from which a run reads.

Known by what they can do, not by their class: a map-style ``torch.utils.data.Dataset`` of (x, y),
a list of such pairs, two arrays (X, y), or one of these for each split, by ``train``, ``val`` and
``test``. Torch is not imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.class_labels import first_few
from metaforge.components import Context
from metaforge.errors import DataError, one_line
from metaforge.records import whole_file
from metaforge.split_names import SPLITS, split_named

#: The arrays of a data set by the options of ``arrays`` that take them: x, y, and perhaps
#: class_names and split.
Arrays = dict[str, np.ndarray]

_EXPECTED = (
    "expected a map-style torch Dataset of (x, y), a list of such pairs, two arrays (X, y), or one "
    "of these for each of train, val and test"
)
#: Samples asked for twice, to see whether they are the same.
_TWICE = 3


def gathered(data: Any, context: Context) -> Arrays:
    """Every sample of a data set, read once and in order.

    The classes of several splits are told apart by the split, as numbers of labels often begin at
    0 in each: class 3 of train is ``train 3``. Names in the attribute ``classes`` of a data set
    are taken over, where its labels are numbers into them.

    Raises ``DataError`` for what is no such data set, and for samples of unlike shapes.
    """
    if isinstance(data, Mapping):
        return _of_splits(data, context)
    if _is_pair(data):
        return {"x": array_of(data[0]), "y": array_of(data[1])}
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or isinstance(data, str):
        raise DataError(f"{named(data)} has no length and no samples by index; {_EXPECTED}")
    if hasattr(data, "task_transforms"):
        raise DataError(
            f"{named(data)} draws tasks, not samples: give the data set that it draws from, or "
            'make a source of its tasks with create("dataset", "ready", tasks=...)'
        )
    if not len(data):
        raise DataError(f"{named(data)} is empty; {_EXPECTED}")
    return _of_samples(data, context)


def keep(arrays: Arrays, folder: Path) -> Path:
    """Write the arrays as npy files to a folder of their own in ``folder``, whole or not at all;
    one with the same content is there already, and taken. ``DataError`` where it cannot be."""
    place = folder / _digest(arrays)
    if place.is_dir():
        return place
    part = folder / f".{place.name}.{os.getpid()}.part"
    try:
        part.mkdir(parents=True, exist_ok=True)
        for name, values in arrays.items():
            with whole_file(part / f"{name}.npy") as file:
                np.save(file, values, allow_pickle=False)
        part.rename(place)
    except OSError as error:
        if not place.is_dir():  # another process may have been first
            raise DataError(f"{place}: cannot write: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def _digest(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, values in arrays.items():
        digest.update(f"{name} {values.dtype} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()


def _of_splits(data: Mapping[Any, Any], context: Context) -> Arrays:
    keys = {split_named(str(key)): key for key in data}
    if set(keys) != set(SPLITS) or len(data) != len(SPLITS):
        raise DataError(f"data sets by {', '.join(map(str, data))}; expected train, val and test")
    parts = {split: gathered(data[keys[split]], context) for split in SPLITS}
    shapes = {split: part["x"].shape[1:] for split, part in parts.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{split} {list(shape)}" for split, shape in shapes.items())
        raise DataError(f"samples of unlike shapes: {told}; bring them to one")
    return {
        "x": np.concatenate([part["x"] for part in parts.values()]),
        "y": np.concatenate([_labels(split, part) for split, part in parts.items()]),
        "split": np.repeat(SPLITS, [len(part["y"]) for part in parts.values()]),
    }


def _labels(split: str, part: Arrays) -> np.ndarray:
    names = part["class_names"][part["y"]] if "class_names" in part else part["y"]
    return np.char.add(f"{split} ", names.astype(str))


def _is_pair(data: Any) -> bool:
    """Whether it is two arrays (X, y), no two samples."""
    return (
        isinstance(data, tuple | list)
        and len(data) == 2
        and not any(isinstance(part, tuple) for part in data)
        and all(hasattr(part, "__len__") for part in data)
    )


def _of_samples(data: Any, context: Context) -> Arrays:
    xs, ys = [], []
    with context.progress("reading samples", len(data)) as advance:
        for number in range(len(data)):
            x, y = _sample(data, number)
            xs.append(x)
            ys.append(y)
            advance(1)
    refuse_unlike([x.shape for x in xs], "x")
    refuse_unlike([y.shape for y in ys], "y")
    if not all(np.array_equal(_sample(data, i)[0], xs[i]) for i in range(min(_TWICE, len(xs)))):
        context.report(
            "note: the data set gives other numbers each time it is asked (a random transform?): "
            "every sample is taken as it came once"
        )
    found = {"x": np.stack(xs), "y": np.stack(ys)}
    names = getattr(data, "classes", None)
    if isinstance(names, list | tuple) and _numbers_into(found["y"], len(names)):
        found["class_names"] = np.array([str(name) for name in names])
    return found


def _numbers_into(y: np.ndarray, count: int) -> bool:
    return y.dtype.kind in "iu" and y.ndim == 1 and y.min() >= 0 and y.max() < count


def _sample(data: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        sample = data[number]
    except Exception as error:
        raise DataError(f"{named(data)}: sample {number} fails: {one_line(error)}") from error
    if not isinstance(sample, tuple | list) or len(sample) < 2:
        raise DataError(
            f"{named(data)}: sample {number} is of type {type(sample).__name__}; {_EXPECTED}"
        )
    return array_of(sample[0]), array_of(sample[1])


def array_of(value: Any) -> np.ndarray:
    """Of a tensor on any device, an array, a number, a text or an image of Pillow, whose channels
    come first then."""
    is_picture = hasattr(value, "getbands")
    try:
        found = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError) as error:  # of a dtype that numpy lacks, or ragged
        raise DataError(f"{type(value).__name__} makes no array: {one_line(error)}") from error
    if found.dtype.kind not in "biufSU":
        raise DataError(f"{type(value).__name__} of dtype {found.dtype}; expected numbers or texts")
    return np.moveaxis(found, -1, 0) if is_picture and found.ndim == 3 else found


def refuse_unlike(shapes: list[tuple[int, ...]], what: str) -> None:
    counts = Counter(shapes)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        odd = np.array([number for number, shape in enumerate(shapes) if shape != usual])
        told = ", ".join(f"{list(shape)} ({count})" for shape, count in counts.most_common(5))
        raise DataError(
            f"{what} of unlike shapes: {told}; others than the first in samples {first_few(odd)}: "
            "bring them to one, by a transform of the data set for instance"
        )


def named(data: Any) -> str:
    return f"data of type {type(data).__name__}"
