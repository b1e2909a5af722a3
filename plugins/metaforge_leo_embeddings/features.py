"""The numbers of the three files in one array: checked, normalised. numpy alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from metaforge_leo_embeddings.tables import Table

_BLOCK = 1 << 13  # rows that are looked at at a time


def load_features(
    tables: Mapping[str, Table], normalize: str, dtype: str
) -> tuple[np.ndarray, list[str]]:
    """The features [n, p] of all the tables, and a line for each table that has bad rows."""
    width = next(iter(tables.values())).values.shape[1]
    out = np.empty((sum(len(table.values) for table in tables.values()), width), dtype=dtype)
    found, start = [], 0
    for table in tables.values():
        stop = start + len(table.values)
        found += _fill(out[start:stop], table, normalize)
        start = stop
    return out, found


def _fill(out: np.ndarray, table: Table, normalize: str) -> list[str]:
    bad, zero = [], []
    for start in range(0, len(out), _BLOCK):
        block = out[start : start + _BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:] = table.values[start : start + _BLOCK]
            squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        bad += (start + np.flatnonzero(~np.isfinite(squares))).tolist()
        if normalize == "l2":
            zero += (start + np.flatnonzero(squares == 0)).tolist()
            with np.errstate(invalid="ignore", divide="ignore"):
                block /= np.sqrt(squares)[:, None]
    lines = []
    if bad:
        lines.append(
            f"leo_embeddings: {table.path}: {len(bad)} rows hold NaN, infinite or too large "
            f"numbers, first {_few(bad)}; expected finite ones: unzip the archive again"
        )
    if zero:
        lines.append(
            f"leo_embeddings: {table.path}: {len(zero)} rows are all zeros, first {_few(zero)}: "
            "they have no direction; unzip the archive again, or set normalize: none"
        )
    return lines


def _few(rows: list[int]) -> str:
    return ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")


def constant_columns(tables: Mapping[str, Table]) -> str | None:
    """A line that counts the columns which are the same in every row, if any are."""
    first = next(iter(tables.values())).values[0]
    constant = np.ones(len(first), dtype=bool)
    for table in tables.values():
        for start in range(0, len(table.values), _BLOCK):
            constant &= (table.values[start : start + _BLOCK] == first).all(0)
    if not constant.any():
        return None
    return (
        f"leo_embeddings: {constant.sum()} of {len(constant)} columns are constant, first "
        f"{_few(np.flatnonzero(constant).tolist())}: they say nothing of a class"
    )
