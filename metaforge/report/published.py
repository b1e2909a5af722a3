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
    if not entries:
        return []
    with_figures = [entry for entry in entries if entry["spread"] is not None]
    rows = [["published, not measured here", "J = 0", "SP", "+-"]] + [
        [
            entry["source"],
            figure(entry["unconditional"]),
            figure(entry["conditional"]),
            entry["spread"],
        ]
        for entry in with_figures
    ]
    found = aligned(rows) if with_figures else []
    findings = [entry for entry in entries if entry["finding"] is not None]
    return found + [f"published: {entry['source']}: {entry['finding']}" for entry in findings]
