"""The table of what selection tried, on validation targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaforge.recipe.render import shown
from metaforge.report.format import aligned, number

#: Rows that a report shows; all are in select.json.
_ROWS = 12


def lines(selection: Mapping[str, Any] | None, unit: str, scale: float) -> list[str]:
    """Best first, the chosen one marked ``*``; J is the best number of steps of each, and what
    it has over the chosen one is counted on its own targets."""
    if selection is None:
        return []
    title, header, rows = table(selection, unit, scale)
    found = [title, *aligned([header, *rows[:_ROWS]])]
    if len(rows) > _ROWS:
        found.append(f"and {len(rows) - _ROWS} more, in select.json")
    return found


def table(
    selection: Mapping[str, Any], unit: str, scale: float
) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and a row for each combination that was tried."""
    tried = selection["tried"]
    keys = list(tried[0]["options"])
    rows = [
        [
            f"{row['rank']}{' *' if row['rank'] == 1 else ''}",
            *(_value(row["options"][key]) for key in keys),
            "" if row["steps"] is None else str(row["steps"]),
            "failed" if row["failed"] else number(row["mean"], scale),
            "" if row["failed"] else number(row["minus_chosen"], scale, sign=True),
            str(row["targets"]),
            "" if row["dropped_in_rung"] is None else str(row["dropped_in_rung"]),
        ]
        for row in tried
    ]
    title = (
        f"selection: {unit}, validation targets; {len(tried)} of {selection['in_grid']} "
        f"combinations, {selection['conditionings']} conditionings; * chosen"
    )
    return title, ["rank", *keys, "J", "mean", "- chosen", "targets", "dropped in rung"], rows


def _value(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
