"""The page of a comparison: methods side by side, figures of their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaforge import run_files
from metaforge.comparison.methods import Method
from metaforge.comparison.render import source_lines, tables
from metaforge.comparison.table import common_scores
from metaforge.records import read_json
from metaforge.report.html import charts, summaries
from metaforge.report.html.charts import Figure
from metaforge.report.html.render import Table, render
from metaforge.report.html.units import Unit

#: Methods that are drawn against the first, and pairs of each.
_DRAWN, _PAIRS = 8, 3000
_RUN = ("run", "method", "seed", "metaforge", "engine", "torch", "device", "threads")


def page(found: dict[str, Any], methods: Sequence[Method]) -> str:
    """The whole page as HTML, of what ``comparison.json`` holds and the runs behind it."""
    unit = Unit.of(found)
    shown = [Table(one.title, one.rows[0], one.rows[1:]) for one in tables(found)]
    seeds = ", ".join(map(str, found["seeds"]))
    return render(
        "compare.html.j2",
        title=f"Comparison of {len(methods)} methods",
        subtitle=f"{unit.score}; {found['split']} targets; seeds {seeds}",
        unlike=found["unlike"],
        warnings=found["warnings"],
        tables=shown,
        statistics=found["statistics"],
        differences=[*_gains(found, unit), *_against_first(found, unit)],
        against_steps=_against_steps(methods, unit),
        pairs=_pairs(methods, unit),
        notes=[*source_lines(found), *found["notes"]],
        runs=Table("the runs", _RUN, _runs(methods)),
    )


def _gains(found: dict[str, Any], unit: Unit) -> list[Figure]:
    """What SP gains over J = 0 by each method."""
    rows = [
        summaries.row(unit, row["method"], row["difference"])
        for row in found["methods"]
        if row["difference"]["mean"] is not None
    ]
    title = "Gain of SP over J = 0 by method"
    return [
        charts.forest(
            "method-gains", title, _caption(found["methods"], "difference"), rows, unit.gain
        )
    ]


def _caption(rows: Sequence[dict[str, Any]], name: str) -> str:
    counts = ", ".join(dict.fromkeys(str(row[name]["n"]) for row in rows))
    return (
        f"Mean paired gain on the same targets (n = {counts}, targets of all seeds together), "
        "positive is better; whiskers: 95 % t intervals over targets, not adjusted for their "
        "number. Those clear of zero are coloured."
    )


def _against_first(found: dict[str, Any], unit: Unit) -> list[Figure]:
    """Each method's SP over that of the first."""
    first, *others = found["methods"]
    against = [row for row in others if row["minus_first"]["conditional"]["mean"] is not None]
    if not against:
        return []
    rows = [
        summaries.row(unit, row["method"], row["minus_first"]["conditional"]) for row in against
    ]
    caption = _caption([row["minus_first"] for row in against], "conditional")
    title = f"SP of each method over {first['method']}"
    return [charts.forest("against-first", title, caption, rows, unit.gain)]


def _against_steps(methods: Sequence[Method], unit: Unit) -> list[Figure]:
    """SP's score after each number of steps that all runs of a method recorded."""
    every = []
    for style, method in enumerate(methods):
        steps, values = _curves(method)
        every.append(summaries.series(method.label, style, steps, values * unit.scale))
    if all(len(one.x) < 2 for one in every):
        return []
    counts = ", ".join(dict.fromkeys(str(sum(len(r.records) for r in m.runs)) for m in methods))
    caption = (
        f"Mean of SP over n = {counts} targets (of all seeds) after J steps of conditioning; "
        "bands: 95 % t intervals over targets (filled for the first method). Methods "
        "share their targets, so that bands that overlap say little of differences."
    )
    labels = ("conditioning steps J", unit.score)
    title = "Score against conditioning steps"
    return [charts.lines("score-against-steps", title, caption, every, labels)]


def _curves(method: Method) -> tuple[list[int], np.ndarray]:
    """Steps and [n, steps] of SP, at the steps that every target of the method has."""
    records = [record for run in method.runs for record in run.records]
    common = set.intersection(*(set(record["steps"]) for record in records))
    steps = sorted(common)
    rows = [dict(zip(r["steps"], r["curves"]["conditional"], strict=True)) for r in records]
    return steps, np.array([[row[step] for step in steps] for row in rows])


def _pairs(methods: Sequence[Method], unit: Unit) -> list[Figure]:
    """Targets by the first method and by another."""
    figures, first = [], methods[0]
    for number, method in enumerate(methods[1 : _DRAWN + 1], start=1):
        common = common_scores(method, first, "conditional")
        points = [(b * unit.scale, a * unit.scale) for a, b in common.values()]
        if not points:
            continue
        gains = [unit.sign * (own - other) for other, own in points]
        better, worse = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
        drawn = "" if len(points) <= _PAIRS else f" (the first {_PAIRS} are drawn)"
        caption = (
            f"SP on n = {len(points)} common targets{drawn}: {method.label} is better on {better}, "
            f"worse on {worse}, equal on {len(points) - better - worse}. Larger marks are several "
            "targets at one place."
        )
        title = f"{method.label} against {first.label}"
        labels = (f"{_short(first.label)}: {unit.score}", f"{_short(method.label)}: {unit.score}")
        figures.append(charts.pairs(f"pairs-{number}", title, caption, points[:_PAIRS], labels))
    return figures


def _short(label: str) -> str:
    """What an axis has room for."""
    return label if len(label) <= 26 else f"{label[:12]}\N{HORIZONTAL ELLIPSIS}{label[-13:]}"


def _runs(methods: Sequence[Method]) -> list[list[str]]:
    rows = []
    for method in methods:
        for run in method.runs:
            env = read_json(run.path / "env.json", run_files.Env)
            told = [env.get("metaforge"), env["engine_digest"], env["packages"].get("torch")]
            told += [env.get("device"), env.get("threads")]
            words = ["not told" if one is None else str(one) for one in told]
            rows.append([run.path.name, method.label, str(run.seed), *words])
    return rows
