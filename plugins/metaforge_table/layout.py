"""From a table's columns to features, labels and what else ``arrays`` takes. numpy alone."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metaforge.class_labels import read_classes
from metaforge.class_options import ClassOptions
from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError, said_by
from metaforge.suggest import did_you_mean, told
from metaforge.table_files import Table, column_names, read_table
from metaforge_arrays import layout as arrays_layout
from metaforge_arrays.options import ArraysOptions
from metaforge_table.options import TableOptions

NAME = "table"
#: What labels are called, where it is not said.
_LABELS = ("label", "y", "class")
#: What columns are called that name rows: a number there says nothing of the row.
_NAMES = ("file", "files", "name", "id")
#: Bytes of a file that the check reads, of Parquet and of text: what is larger is left to the run.
_MOST, _MOST_TEXT = 32 * 2**20, 2 * 2**20


class Roles(NamedTuple):
    """Which column is what: ``others`` are those of the options group, sample_group, names and
    split, by option."""

    label: str
    features: tuple[str, ...]
    others: dict[str, str]


def has_groups(options: TableOptions) -> bool:
    """Whether tasks have groups: those that are drawn within a class group are of it."""
    return options.within > 0


def check(options: TableOptions, context: Context) -> list[str]:
    """Everything wrong with the table. Of a file of more than 2 MiB (of Parquet 32) only the names
    of its columns are looked at, which ``context.report`` is told."""
    try:
        with said_by(NAME):
            roles_of(options)
            if _is_large(options.path):
                context.report(
                    f"{NAME}: the rows of {options.path} are not read here: whether all of them "
                    "can be used the run will say, before it trains"
                )
                return []
            given = as_arrays(options)
    except DataError as error:
        return [str(error)]
    except ValueError as error:  # of the options of arrays
        return [f"{NAME}: {options.path}: {error}"]
    found = arrays_layout.check(given, context)
    return [f"{NAME}: {options.path}: {line.removeprefix('arrays: ')}" for line in found]


def facts(options: TableOptions, context: Context) -> DataFacts:
    """Width and class names; of a large file nothing. Raises what ``as_arrays`` raises."""
    roles_of(options)
    if _is_large(options.path):
        return DataFacts()
    return arrays_layout.facts(as_arrays(options), context)


def _is_large(path: Path) -> bool:
    most = _MOST if path.suffix.lower() == ".parquet" else _MOST_TEXT
    return path.stat().st_size > most


def roles_of(options: TableOptions) -> Roles:
    """Raises ``DataError`` that lists every column that is not there, and where no label is."""
    names = column_names(options.path)
    faults = []
    label = options.label or next((name for name in _LABELS if name in names), None)
    others = {
        option: value
        for option in ("group", "sample_group", "names", "split")
        if isinstance(value := getattr(options, option), str)
    }
    if label is None:
        faults.append(
            f"no column of labels, none being called {', '.join(_LABELS)}: say which one is, "
            "label: NAME"
        )
    for option, name in ({} if label is None else {"label": label} | others).items():
        if name not in names:
            faults.append(f"no column {told(name)} (option {option}){did_you_mean(name, names)}")
    if "names" not in others:
        taken = {label, *others.values()}
        free = [n for n in names if n not in taken and not _asked(n, options)]
        if naming := next((n for n in _NAMES if n in free), None):
            others["names"] = naming
    free = [name for name in names if name not in {label, *others.values()}]
    features = free
    if options.columns is not None:
        features = [n for n in free if any(fnmatchcase(n, some) for some in options.columns)]
        faults += [
            f"no column {told(some)} (option columns){did_you_mean(some, free)}"
            for some in options.columns
            if not any(fnmatchcase(name, some) for name in free)
        ]
    if not features and not faults:
        faults.append("no column is left for features")
    if faults:
        shown = ", ".join(map(told, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
        raise DataError(f"{options.path}: {'; '.join(faults)}; it has {shown}")
    assert label is not None
    return Roles(label, tuple(features), others)


def _asked(name: str, options: TableOptions) -> bool:
    """Whether a column is asked for as a feature."""
    return any(fnmatchcase(name, some) for some in options.columns or ())


#: Columns that a message names.
_SHOWN = 30


def as_arrays(options: TableOptions) -> ArraysOptions:
    """The same tasks as options of ``arrays``, with the columns as arrays in memory.

    Raises ``DataError`` with every faulty cell, the columns of features that hold no numbers, and
    classes whose rows have several groups.
    """
    roles = roles_of(options)
    table = _read(options.path, roles)
    shared = {
        name: getattr(options, name)
        for name in (*ClassOptions.model_fields, "normalize")
        if name in options.model_fields_set
    }
    own: dict[str, Any] = {option: table.columns[name] for option, name in roles.others.items()}
    if "names" in own:
        own["sample_names"] = own.pop("names").astype(str)
    labels = table.columns[roles.label]
    read_classes(labels, f"column {told(roles.label)}")
    return ArraysOptions(x=_features(table, roles.features), y=labels, **shared | own)


def _read(path: Path, roles: Roles) -> Table:
    stat = path.stat()
    text = (roles.label, *roles.others.values())
    return _read_once(path, (stat.st_size, stat.st_mtime_ns), (*text, *roles.features), text)


@lru_cache(maxsize=1)
def _read_once(
    path: Path, stat: tuple[int, int], only: tuple[str, ...], text: tuple[str, ...]
) -> Table:
    """The checks of a recipe ask for the same table several times."""
    return read_table(path, only, text)


def _features(table: Table, names: tuple[str, ...]) -> np.ndarray:
    """[n, p]: the columns side by side."""
    wordy = [name for name in names if table.columns[name].dtype.kind not in "iuf"]
    if wordy:
        shown = ", ".join(map(told, wordy[:_SHOWN])) + (", ..." if len(wordy) > _SHOWN else "")
        raise DataError(
            f"{table.path}: {len(wordy)} columns of features hold no numbers: {shown}; leave them "
            "out (columns: [NAME, ...]), or give them another use (label, group, names, ...)"
        )
    return np.concatenate([table.columns[name].reshape(len(table), -1) for name in names], axis=1)
