"""The pools of classes that ``arrays`` draws tasks from. numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from metaforge.array_files import Arrays
from metaforge.class_labels import Classes, read_classes
from metaforge.class_pools import Division, numbered
from metaforge.class_splits import split_of_class
from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.embedded import ORIGIN
from metaforge.errors import DataError, said_by
from metaforge.pools import Pool
from metaforge.sampling_checks import problems
from metaforge.turned import turned_pools
from metaforge_arrays.disk import lacking_room
from metaforge_arrays.inputs import Reader, check_header, sample_shape
from metaforge_arrays.options import ArraysOptions

#: The options that may name an array of the file.
_ARRAYS = (
    "x",
    "y",
    "features",
    "class_names",
    "group",
    "group_names",
    "sample_group",
    "sample_names",
    "split",
)
#: Those that a file of ``metaforge embed`` has arrays for, by their names there.
_EMBEDDED = {"split": "split", "sample_names": "files", "sample_group": "sample_group"}
#: Bytes of numbers that the check reads: what it leaves to the run would take too long.
_MOST = 32 * 2**20
#: Bytes of samples that are held against each other.
_MOST_COMPARED = 64 * 2**20


def completed(options: ArraysOptions, arrays: Arrays) -> ArraysOptions:
    """The options with what a file of ``metaforge embed`` says of its rows, where they do not."""
    if ORIGIN not in arrays.names:
        return options
    told = {option: name for option, name in _EMBEDDED.items() if name in arrays.names}
    own = {option: name for option, name in told.items() if option not in options.model_fields_set}
    return options.model_copy(update=own)


def check(options: ArraysOptions, context: Context) -> list[str]:
    """Everything wrong with the file, the labels, the splits and the numbers. Numbers of more
    than 32 MiB are left to the loading, which ``context.report`` is told."""
    try:
        arrays = Arrays(options.path)
        options = completed(options, arrays)
        if missing := arrays.missing({name: getattr(options, name) for name in _ARRAYS}):
            return [f"arrays: {line}" for line in missing]
        plain = make_pools(options, arrays)
    except DataError as error:
        return [str(error)]
    pools = task_pools(options, arrays, plain)
    reader = Reader(options, arrays, training_rows(plain), replace(context, report=_unheard))
    found = problems(pools, options.sizes())
    if options.storage == "disk" and (line := lacking_room(arrays, options.x, context)):
        found.append(line)
    for name, read in (("x", reader.x), ("features", reader.features)):
        if getattr(options, name) is None or _is_left(name, options, arrays, context):
            continue
        try:
            read()
        except DataError as error:
            found.append(str(error))
    return found


def _is_left(name: str, options: ArraysOptions, arrays: Arrays, context: Context) -> bool:
    """Whether an array of numbers is too large to be read now."""
    value = getattr(options, name)
    shape, dtype = arrays.header(name, value)
    size = prod(shape) * dtype.itemsize
    if size <= _MOST:
        return False
    if dtype.kind == "f" or options.normalize == "l2":
        context.report(
            f"arrays: the {size / 2**20:.0f} MiB of {arrays.told(name, value)} are not read here: "
            "whether all of them can be used the run will say, before it trains"
        )
    return True


def _unheard(line: str) -> None:
    """What is remarkable is the run's to tell."""


def shared_rows(values: np.ndarray, pools: Mapping[str, Sequence[Pool]]) -> str | None:
    """A line that tells of samples [n, *x] which stand in two splits, number for number, under
    other labels perhaps: what is tested on was trained on. None for more than 64 MiB, too."""
    if values.nbytes > _MOST_COMPARED:
        return None
    rows = np.ascontiguousarray(values.reshape(len(values), -1))
    of_split = {
        split: {rows[row].tobytes() for pool in some for one in pool.members for row in one}
        for split, some in pools.items()
    }
    pairs = combinations(of_split, 2)
    found = {f"{a} and {b}": len(of_split[a] & of_split[b]) for a, b in pairs}
    told = [f"{count} of both {pair}" for pair, count in found.items() if count]
    if not told:
        return None
    return (
        f"arrays: the same samples stand in two splits ({'; '.join(told)}): so far, what is tested "
        "on was trained on; leave them out of one"
    )


def training_rows(pools: Mapping[str, Sequence[Pool]]) -> np.ndarray:
    """The rows of the training classes, in order."""
    return np.unique(np.concatenate([rows for pool in pools["train"] for rows in pool.members]))


def has_groups(options: ArraysOptions) -> bool:
    """Whether tasks have groups: those that are drawn within a class group are of it."""
    return options.within > 0


def facts(options: ArraysOptions, context: Context) -> DataFacts:
    """Width, shape and class names. Labels without ``class_names`` are names if they are words;
    numbers mean something within their file alone. Raises what ``make_pools`` raises."""
    arrays = Arrays(options.path)
    options = completed(options, arrays)
    option = "x" if options.features is None else "features"
    columns = options.bits if option == "x" else None
    width = prod(columns or arrays.header(option, getattr(options, option))[0][1:])
    shape = sample_shape(options.bits or arrays.header("x", options.x)[0][1:])
    pools = task_pools(options, arrays, make_pools(options, arrays))
    words = options.class_names is not None or arrays.get("y", options.y).dtype.kind in "US"
    where = ""
    if not words:
        if options.path is None:
            return DataFacts(width=width, shape=shape)
        where = f"{options.y} of {options.path.resolve()}: "
    names = {
        split: frozenset(where + name for pool in some for name in pool.class_names)
        for split, some in pools.items()
    }
    return DataFacts(width=width, classes=names, shape=shape)


def make_pools(options: ArraysOptions, arrays: Arrays) -> dict[str, list[Pool]]:
    """The pools of each split: tasks across class groups, within one, or both by ``within``.

    Raises ``DataError`` if labels, groups, splits or lengths are not usable.
    """
    y = arrays.get("y", options.y)
    given = None if options.shares is not None else arrays.get("split", options.split)
    with said_by("arrays"):
        classes = read_classes(y)
    for name in ("x", "features"):
        if getattr(options, name) is not None:
            _same_length(name, check_header(name, options, arrays), classes)
    groups, group_names = _groups(options, arrays, classes)
    with said_by("arrays"):
        split = split_of_class(options, classes, groups, given)
    names = _names(options, arrays, classes)
    sample_groups = _of_rows("sample_group", options, arrays, classes)
    _of_rows("sample_names", options, arrays, classes)
    return Division(
        classes,
        names,
        split,
        groups,
        group_names,
        None if sample_groups is None else numbered(sample_groups),
    ).pools(options.within)


def task_pools(
    options: ArraysOptions, arrays: Arrays, pools: Mapping[str, Sequence[Pool]]
) -> dict[str, list[Pool]]:
    """What tasks are drawn from: the pools of ``make_pools``, with classes turned if asked for."""
    rows = arrays.header("x", options.x)[0][0]
    return turned_pools(pools, rows, options.augment.rotations)


def _names(options: ArraysOptions, arrays: Arrays, classes: Classes) -> list[str]:
    if options.class_names is None:
        return list(map(str, classes.labels))
    return list(map(str, _per_class("class_names", options, arrays, classes)))


def _groups(
    options: ArraysOptions, arrays: Arrays, classes: Classes
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The group of each class [C], numbered 0..G-1, and the names [G]."""
    if options.group is None:
        return None, ()
    given = _per_class("group", options, arrays, classes)
    values, groups = np.unique(given, return_inverse=True)
    if options.group_names is None:
        return groups, tuple(map(str, values))
    names = arrays.get("group_names", options.group_names)
    if values.dtype.kind not in "iu" or values[0] < 0 or values[-1] >= len(names):
        raise DataError(
            f"arrays: group_names has {len(names)} names, but group holds {values[0]} to "
            f"{values[-1]}; expected positions in group_names, from 0"
        )
    return groups, tuple(map(str, names[values]))


def _per_class(option: str, options: ArraysOptions, arrays: Arrays, classes: Classes) -> np.ndarray:
    given = arrays.get(option, getattr(options, option))
    with said_by("arrays"):
        return classes.per_class(option, given)


def _of_rows(
    option: str, options: ArraysOptions, arrays: Arrays, classes: Classes
) -> np.ndarray | None:
    """An array with an entry for each row; None where the option is not set."""
    if getattr(options, option) is None:
        return None
    given = arrays.get(option, getattr(options, option))
    _same_length(option, given.shape, classes)
    return given


def _same_length(option: str, shape: tuple[int, ...], classes: Classes) -> None:
    rows = len(classes.of_row)
    if shape[:1] != (rows,):
        raise DataError(
            f"arrays: {option} has shape {list(shape)}, but y has {rows} rows; they must agree"
        )
