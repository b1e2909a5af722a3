"""Measured figures in the docs: text in marked places of a page, and the table of all rows.

``python -m benchmarks --write`` keeps what it measured in ``measured.json`` and puts the table
of it into docs/results.md; a run of some benchmarks alone replaces theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name("measured.json")
RESULTS = Path(__file__).parents[1] / "docs" / "results.md"
_HEADER = ("", "ms", "quartiles", "times as fast as the peer", "promised", "peak MB")


def put(name: str, text: str, page: str) -> str:
    """The page with the text in the place of that name; ``ValueError`` where it has none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def keep(content: Mapping[str, Any], path: Path = MEASURED, page: Path = RESULTS) -> None:
    """Write what was measured (``harness.content``) beside what is kept of other benchmarks."""
    old = json.loads(path.read_text()) if path.exists() else {}
    kept = dict.fromkeys(content["benchmarks"], content["machine"])
    new = {
        "machines": old.get("machines", {}) | kept,
        "benchmarks": old.get("benchmarks", {}) | dict(content["benchmarks"]),
    }
    path.write_text(json.dumps(new, indent=1) + "\n")
    text = put("speed", speed(new), page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def speed(measured: Mapping[str, Any]) -> str:
    """Every row as a Markdown table, under the machine that it was measured on."""
    parts: list[str] = []
    last = ""
    for name, rows in sorted(measured["benchmarks"].items()):
        facts = {k: v for k, v in measured["machines"][name].items() if k != "load"}
        machine = ", ".join(f"{key} {value}" for key, value in facts.items())
        if machine != last:
            parts.append(f"Measured on: {machine}.")
        last = machine
        parts += [f"### {name}", *(_table(row) for row in rows)]
    return "\n\n".join(parts)


def _table(row: Mapping[str, Any]) -> str:
    lines: list[Sequence[str]] = [_HEADER, ("---", *["---:"] * (len(_HEADER) - 1))]
    lines += [_line(name, entry, name == row["peer"]) for name, entry in row["entries"].items()]
    title = f"**{row['name']}**" + (f": {row['note']}" if row["note"] else "")
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _line(name: str, entry: Mapping[str, Any], peer: bool) -> Sequence[str]:
    low, high = (f"{1e3 * value:.4g}" for value in entry["quartiles_s"])
    least, peak = entry["promised"], entry["peak_bytes"]
    return (
        name + " (peer)" * peer,
        f"{1e3 * entry['median_s']:.4g}",
        f"{low} .. {high}",
        f"{entry['times_peer']:.3g}",
        "" if least is None else f"{least:.3g}",
        "" if peak is None else f"{peak / 1e6:.0f}",
    )
