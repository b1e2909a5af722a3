"""One released file as a table: rows of features, and the class of each. numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.errors import DataError
from metaforge.pickle_arrays import Array, BadPickle, as_text
from metaforge.pickles import read_pickle_file

_ENTRIES = ("embeddings", "keys", "labels")
_EXPECTED = (
    "expected a pickled dict of embeddings [n, p], labels [n] and keys [n], as LEO's authors "
    "released it; unzip the archive again"
)

#: Something for each row.
Items = np.ndarray | list[Any] | tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds.

    values       [n, p] floats, a view of the file: nothing of it is read yet
    class_names  [C] in order of appearance
    of_row       [n] the position of each row's class in ``class_names``
    """

    path: Path
    values: np.ndarray
    class_names: tuple[str, ...]
    of_row: np.ndarray

    def members(self) -> list[np.ndarray]:
        """The rows of each class, in order."""
        order = np.argsort(self.of_row, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.of_row))[:-1])


def read_table(path: Path) -> Table:
    """Keys are ``SPLIT-CLASS-IMAGE``: the class of a row is the middle of its key, as LEO's
    and TASML's own programs have it; labels must not contradict it.

    Raises ``DataError`` for a file that is damaged, not of this form, or asks for more than
    data; nothing in it is executed.
    """
    try:
        entries = _entries(read_pickle_file(path))
        values = _values(entries["embeddings"])
        keys = _keys(entries["keys"], len(values))
        names, of_row = _classes(keys)
        _agree(_items("labels", entries["labels"], len(values)), names, of_row)
    except BadPickle as error:
        raise DataError(f"leo_embeddings: {path}: {error}; {_EXPECTED}") from None
    except OSError as error:
        raise DataError(f"leo_embeddings: {path} cannot be read: {error.strerror}") from None
    return Table(path, values, names, of_row)


def _entries(found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise BadPickle(f"it holds a {type(found).__name__}")
    if absent := [name for name in _ENTRIES if name not in found]:
        shown = ", ".join(ascii(str(name)[:40]) for name in list(found)[:8]) or "nothing"
        raise BadPickle(f"it lacks {' and '.join(absent)}, it holds {shown}")
    return found


def _values(entry: Any) -> np.ndarray:
    values = entry.value if type(entry) is Array else entry
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind != "f":
        raise BadPickle(f"embeddings are {_kind(values)}, not floats [n, p]")
    return values


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"of type {value.dtype} and shape {list(value.shape)}"
    return f"a {type(value).__name__}" if value is not None else "nothing"


def _items(name: str, entry: Any, rows: int) -> Items:
    """An entry with something for each row, as a list or an array."""
    items = entry.value if type(entry) is Array else entry
    if not isinstance(items, np.ndarray | list | tuple):
        raise BadPickle(f"{name} are {_kind(items)}, not a list or an array")
    if len(items) != rows:
        raise BadPickle(f"there are {rows} rows of embeddings, but {len(items)} {name}")
    return items


def _plain(name: str, items: Items, allowed: tuple[type, ...]) -> list[Any]:
    """The items as a list, each of them of a type that is allowed."""
    try:
        plain = items.tolist() if isinstance(items, np.ndarray) else list(items)
    except ValueError as error:  # code points that are none
        raise BadPickle(f"{name} cannot be read ({error})") from None
    for row, item in enumerate(plain):
        if type(item) not in allowed:
            raise BadPickle(f"{name}[{row}] is a {type(item).__name__}")
    return plain


def _keys(entry: Any, rows: int) -> list[str]:
    raw = _plain("keys", _items("keys", entry, rows), (bytes, str))
    if len(set(raw)) < rows:  # before they are copied: one long string can be named often
        raise BadPickle(f"{rows - len(set(raw))} keys are there twice")
    return [as_text(key) for key in raw]


def _classes(keys: list[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the classes, and the position of each key's class among them."""
    numbers: dict[str, int] = {}
    of_row = np.empty(len(keys), dtype=np.int64)
    for row, key in enumerate(keys):
        parts = key.split("-")
        if len(parts) != 3 or not parts[1]:
            raise BadPickle(f"keys[{row}] is {key[:60]!a}, not SPLIT-CLASS-IMAGE")
        of_row[row] = numbers.setdefault(parts[1], len(numbers))
    return tuple(numbers), of_row


def _agree(labels: Items, names: tuple[str, ...], of_row: np.ndarray) -> None:
    """Rows of one class have one label. (Rows of labels, one-hot say, are not looked into.)"""
    if isinstance(labels, np.ndarray) and labels.ndim > 1:
        return
    seen: dict[int, Any] = {}
    plain = _plain("labels", labels, (bytes, str, int, float, bool))
    for row, (number, label) in enumerate(zip(of_row.tolist(), plain, strict=True)):
        if (first := seen.setdefault(number, label)) != label:
            raise BadPickle(
                f"keys and labels contradict each other: class {names[number]!a} has the "
                f"labels {ascii(first)[:40]} and {ascii(label)[:40]} (row {row})"
            )
