"""Columns of Parquet files, by pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.errors import DataError, one_line
from metaforge.optional import PYARROW
from metaforge.suggest import told


def column_names(path: Path) -> list[str]:
    """Raises ``DataError`` where pyarrow is missing, or cannot read the file."""
    return list(_opened(path).schema_arrow.names)


def read_columns(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of numbers, texts, truth values, or lists of numbers of one length ([n, p]).

    Raises one ``DataError`` that lists the columns of other types, and those with empty cells.
    """
    file = _opened(path)
    if not file.metadata.num_rows:
        raise DataError(f"{path}: has no rows")
    try:
        table = file.read(columns=list(names))
    except Exception as error:
        raise DataError(f"{path}: is damaged ({one_line(error)}); copy it again") from error
    columns: dict[str, np.ndarray] = {}
    faults = []
    for name in names:
        found = _array(table.column(name).combine_chunks())
        if isinstance(found, str):
            faults.append(f"{path}: column {told(name)} {found}")
        else:
            columns[name] = found
    if faults:
        raise DataError("\n".join(faults))
    return columns


def _opened(path: Path) -> Any:
    if PYARROW.missing:
        raise DataError(f"{path}: {PYARROW.missing}\nor save the table as csv")
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:
        raise DataError(f"{path}: no whole Parquet file ({one_line(error)})") from error


def _array(column: Any) -> np.ndarray | str:
    """A column's numbers or texts, or why it has none."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return _array(column.dictionary_decode())
    if column.null_count:
        (first, *_) = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        return f"has {column.null_count} empty cells, first in row {first}; fill or drop the rows"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _rows(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=str)
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    if types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    return f"holds {kind}; expected numbers, texts or lists of numbers"


def _rows(column: Any) -> np.ndarray | str:
    """A column of lists as rows [n, p]."""
    values = _array(column.flatten())
    if isinstance(values, str):
        return f"holds lists; a list in it {values}"
    widths = set(map(len, column.to_numpy(zero_copy_only=False)))
    if len(widths) > 1:
        return f"holds lists of {min(widths)} to {max(widths)} numbers; expected one length"
    return values.reshape(len(column), -1)
