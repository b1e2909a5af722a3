"""Published figures as text, always under their own name and never among the measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaforge.report.format import aligned

Entry = dict[str, Any]


def figure(printed: dict[str, float] | None) -> str:
    """``62.04 +- 0.52``, as the source prints it; nothing where it prints none."""
    return "" if printed is None else f"{printed['mean']:g} +- {printed['spread']:g}"


def first(entries: Sequence[Entry], name: str) -> dict[str, float] | None:
    """The first entry's ``unconditional`` or ``conditional`` figure that there is."""
    return next((entry[name] for entry in entries if entry[name] is not None), None)


def lines(entries: Sequence[Entry]) -> list[str]:
    """A block of its own: the figures by source with what their +- is, then the findings."""
    printed = [entry for entry in entries if entry["spread"] is not None]
    findings = [entry for entry in entries if entry["finding"] is not None]
    return [
        *(_table(printed) if printed else ()),
        *(f"published, not measured here: {e['source']}: {e['finding']}" for e in findings),
    ]


def _table(entries: Sequence[Entry]) -> list[str]:
    rows = [
        [entry["source"], figure(entry["unconditional"]), figure(entry["conditional"])]
        for entry in entries
    ]
    told = aligned([["published, not measured here", "J = 0", "SP"], *rows])
    width = max(map(len, told))
    spreads = ["+- is", *(entry["spread"] for entry in entries)]
    return [f"{row:<{width}}  {spread}" for row, spread in zip(told, spreads, strict=True)]
