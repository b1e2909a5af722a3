"""Figures as text, the same in every table; what is not defined says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

UNDEFINED = "undefined"
#: Errors below it are zeros to three decimals.
_SMALL = 5e-4


def number(value: float | None, scale: float, sign: bool = False) -> str:
    """A figure times ``scale``: two decimals for percent, else three, or where these would be
    zeros alone three significant digits."""
    if value is None:
        return UNDEFINED
    digits = 2 if scale != 1.0 else 3
    if scale == 1.0 and 0 < abs(value) < _SMALL:
        return f"{value:{'+' if sign else ''}.2e}"
    return f"{value * scale:{'+' if sign else ''}.{digits}f}"


def interval(bounds: Sequence[float] | None, scale: float, sign: bool = False) -> str:
    """Both ends of an interval."""
    if bounds is None:
        return UNDEFINED
    return f"{number(bounds[0], scale, sign)} .. {number(bounds[1], scale, sign)}"


def p_value(value: float | None) -> str:
    """A p, three digits."""
    if value is None:
        return UNDEFINED
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def aligned_pairs(said: Mapping[str, str]) -> list[str]:
    """Names and what is said of each, as lines with the texts below each other."""
    width = max(map(len, said))
    return [f"{name:<{width}}  {text}" for name, text in said.items()]
