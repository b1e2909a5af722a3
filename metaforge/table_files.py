"""Tables of named columns: csv, tsv and Parquet files. numpy alone; Parquet by pyarrow.

A text file is UTF-8, with or without a byte order mark; its first line names the columns; fields
may be quoted. Of csv the separator is the one of ``,``, ``;`` and tab that parts the first line
the most. Nothing is guessed of a cell: one that is empty, or no number in a column of numbers
(``NaN``, ``n/a``, a decimal comma), is a fault.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from metaforge import parquet_files
from metaforge.errors import DataError
from metaforge.suggest import did_you_mean, told

ENDINGS = (".csv", ".tsv", ".parquet")
#: Rows that are made arrays of at a time; faults that a message lists.
_ROWS, _TOLD = 1024, 200
_WHOLE, _COMMA = re.compile(r"0|-?[1-9]\d*"), re.compile(r"[+-]?\d+,\d+")
_REAL = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d{1,2})?")


#: Characters of a text: every row takes as much memory as the longest of its column.
_LONGEST = 1000


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file by name, in its order: int64, float64 (finite) or strings [n]; of
    Parquet also [n, p], where a column holds lists of one length."""

    path: Path
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def column_names(path: Path) -> list[str]:
    """The names of a file's columns, whose rows are not read. Raises ``DataError`` for a file
    that is no table, or whose names are missing or not distinct."""
    _require(path)
    if path.suffix.lower() == ".parquet":
        return parquet_files.column_names(path)
    with io.StringIO(_text(path), newline=None) as file:
        return _names(path, file)[0]


def read_table(
    path: Path, only: Collection[str] | None = None, text: Collection[str] = ()
) -> Table:
    """The columns of a file, all or ``only`` some.

    A column whose cells are for the most part numbers is one of numbers, int64 where all are
    whole, and its other cells are faults. Columns ``text`` may hold anything: numbers where all
    cells are written as such (``007`` is none), else strings. Raises one ``DataError`` that lists
    every fault, a cell's with line and column (of Parquet with row).
    """
    names = column_names(path)
    if unknown := [name for name in only or () if name not in names]:
        lines = [f"no column {told(name)}{did_you_mean(name, names)}" for name in unknown]
        raise DataError(f"{path}: {'; '.join(lines)}; it has {', '.join(map(told, names))}")
    only = names if only is None else [name for name in names if name in set(only)]
    if path.suffix.lower() == ".parquet":
        columns = parquet_files.read_columns(path, only)
        _refuse(path, _not_finite(columns))
        return Table(path, columns)
    return Table(path, _read(path, only, set(text)))


def _require(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: expected a table, whose name ends in {', '.join(ENDINGS)}")
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; a relative path starts at the recipe's folder, in key=value "
            "at the current one"
        )


def _refuse(path: Path, faults: Sequence[str]) -> None:
    if faults:
        more = [f"and {len(faults) - _TOLD:,} more faults"] if len(faults) > _TOLD else []
        raise DataError("\n".join(f"{path}: {line}" for line in [*faults[:_TOLD], *more]))


def _not_finite(columns: dict[str, np.ndarray]) -> list[str]:
    lines = []
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))
            lines += [f"row {row}: column {told(name)} is NaN or infinite" for row in bad]
    return lines


def _text(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:1024]:
        raise DataError(f"{path}: is no UTF-8 text (UTF-16, or no text at all); save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"line {line}: byte {data[error.start]:#x} is no UTF-8"
        raise DataError(f"{path}: {found}; save the file as UTF-8") from error


def _names(path: Path, file: io.StringIO) -> tuple[list[str], str]:
    """The names of the first line, after which ``file`` stands then, and the separator."""
    first = file.readline()
    separators = "\t" if path.suffix.lower() == ".tsv" else ",;\t"
    split = {each: next(csv.reader([first], delimiter=each), []) for each in separators}
    separator = max(split, key=lambda each: len(split[each]))
    names = [name.strip() for name in split[separator]]
    if not any(names):
        raise DataError(f"{path}: line 1 is empty; expected the names of the columns")
    if all(map(_is_number, names)):
        raise DataError(
            f"{path}: line 1 holds numbers alone, no names; write a line with the names of the "
            "columns above"
        )
    hint = "name it, or leave it out (of pandas: to_csv(..., index=False))"
    nameless = [n for n, name in enumerate(names, 1) if not name]
    faults = [f"line 1: column {n} has no name; {hint}" for n in nameless]
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    _refuse(path, [*faults, *(f"line 1: two columns are named {told(name)}" for name in twice)])
    return names, separator


def _read(path: Path, only: Sequence[str], text: set[str]) -> dict[str, np.ndarray]:
    with io.StringIO(_text(path), newline=None) as file:
        names, separator = _names(path, file)
        places = {name: names.index(name) for name in only}
        columns = {name: _Column(name, name in text) for name in only}
        faults: list[str] = []
        rows = _rows(file, separator, len(names), faults)
        n = 0
        while some := list(islice(rows, _ROWS)):
            n += len(some)
            lines = [line for line, _ in some]
            for name, place in places.items():
                columns[name].add(lines, [row[place].strip() for _, row in some])
    if not n and not faults:
        raise DataError(f"{path}: has no rows below the names of its columns")
    wordy = {column.name for column in columns.values() if 2 * len(column.odd) >= n > 0}
    if wordy - text:  # what was read as numbers of them is lost
        return _read(path, only, text | wordy)
    _refuse(path, [*faults, *(line for column in columns.values() for line in column.faults())])
    return {name: column.values() for name, column in columns.items()}


def _rows(
    file: io.StringIO, separator: str, width: int, faults: list[str]
) -> Iterator[tuple[int, list[str]]]:
    """Each row of the right width, with the line that it begins on; of others ``faults`` tells.
    Empty lines are passed over."""
    reader = csv.reader(file, delimiter=separator, strict=True)
    line = 2
    try:
        for row in reader:
            if len(row) == width:
                yield line, row
            elif row:
                faults.append(f"line {line}: {len(row)} fields, expected {width}")
            line = reader.line_num + 2
    except csv.Error as error:
        faults.append(f"line {line}: cannot be read from here on ({error})")


@dataclass(eq=False)
class _Column:
    """A column as it is read: ``odd`` are its cells that are no numbers, with their lines."""

    name: str
    is_text: bool
    odd: list[tuple[int, str]] = field(default_factory=list)
    parts: list[np.ndarray] = field(default_factory=list)

    def add(self, lines: Sequence[int], cells: Sequence[str]) -> None:
        if self.is_text:
            pairs = zip(lines, cells, strict=True)
            self.odd += [pair for pair in pairs if not 0 < len(pair[1]) <= _LONGEST]
            self.parts.append(np.array([cell[:_LONGEST] for cell in cells]))
            return
        try:
            numbers = np.array(cells).astype(np.float64)
        except ValueError:
            numbers = np.array([float(cell) if _is_number(cell) else math.nan for cell in cells])
        bad = np.flatnonzero(~np.isfinite(numbers)).tolist()
        self.odd += [(lines[row], cells[row]) for row in bad]
        self.parts.append(numbers)

    def faults(self) -> list[str]:
        return [f"line {line}: column {told(self.name)} {_why(cell)}" for line, cell in self.odd]

    def values(self) -> np.ndarray:
        found = np.concatenate(self.parts)
        if self.is_text:
            if all(map(_WHOLE.fullmatch, found.tolist())):
                return _whole(found)
            real = all(map(_REAL.fullmatch, found.tolist()))
            return found.astype(np.float64) if real else found
        exact = (found == np.rint(found)).all() and np.abs(found).max() < 2**53
        return found.astype(np.int64) if exact else found


def _whole(texts: np.ndarray) -> np.ndarray:
    try:
        return texts.astype(np.int64)
    except (OverflowError, ValueError):  # names, however they look
        return texts


def _is_number(cell: str) -> bool:
    """Whether a cell is a finite number, written without the underscores that Python allows."""
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _why(cell: str) -> str:
    if not cell:
        return "is empty; give it a value, or leave the row out"
    if len(cell) > _LONGEST:
        return f"has a text of {len(cell):,} characters; at most {_LONGEST:,} are read"
    if _COMMA.fullmatch(cell):
        return f"holds {cell}, a decimal comma; write {cell.replace(',', '.')}"
    return f"holds {cell[:40]!r}, expected a finite number"
