"""A comparison as text for the terminal, as Markdown, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from metaforge.arm_names import CONDITIONAL, compared_with
from metaforge.report import published
from metaforge.report.format import aligned, interval, number, p_value


class Table(NamedTuple):
    """A title and rows of equal length, the first of them the header."""

    title: str
    rows: list[list[str]]


def tables(found: dict[str, Any]) -> list[Table]:
    """Methods, their controls, and each method against the first; empty ones are left out."""
    percent = found["metric"].startswith("accuracy")
    scale, unit = (
        (100.0, "accuracy, %") if percent else (1.0, "mean squared error, lower is better")
    )
    seeds = f"seed{'s' if len(found['seeds']) > 1 else ''} {_listed(found['seeds'])}"
    title = f"{unit}, {found['split']} targets, {seeds} (SP: conditional, after J steps)"
    every = [
        Table(title, _methods(found["methods"], scale)),
        _controls(found["methods"], scale),
        _against_first(found["methods"], scale),
    ]
    return [table for table in every if len(table.rows) > 1]


_HEADER = [
    *("method", "n", "unconditional", "95 % CI", "SP", "95 % CI", "seed sd"),
    *("SP - uncond.", "95 % CI", "p", "seed sd", "J", "s/target"),
]


def _methods(rows: Sequence[dict[str, Any]], scale: float) -> list[list[str]]:
    """The header and a row a method; others' figures in columns of their own, if there are any."""
    cells = [_HEADER, *(_method(row, scale) for row in rows)]
    for name, title in (("unconditional", "published uncond."), ("conditional", "published SP")):
        column = [published.figure(published.first(row["published"], name)) for row in rows]
        if any(column):
            cells = [[*row, cell] for row, cell in zip(cells, [title, *column], strict=True)]
    return cells


def _method(row: dict[str, Any], scale: float) -> list[str]:
    before, after, gain = row["unconditional"], row["conditional"], row["difference"]
    return [
        row["method"],
        str(after["n"]),
        number(before["mean"], scale),
        interval(before["ci95"], scale),
        number(after["mean"], scale),
        interval(after["ci95"], scale),
        number(row["seed_sd"]["conditional"], scale),
        *_difference(gain, scale),
        number(row["seed_sd"]["difference"], scale),
        _listed(row["steps"]),
        f"{row['seconds_per_target']:.2f}",
    ]


def _difference(figure: dict[str, Any], scale: float) -> list[str]:
    return [
        number(figure["mean"], scale, sign=True),
        interval(figure["ci95"], scale, sign=True),
        p_value(figure["p"]),
    ]


def _controls(rows: Sequence[dict[str, Any]], scale: float) -> Table:
    """Rows are methods, columns controls; p is in the CSV."""
    names = _control_names(rows)
    header = ["method", *(_control_title(name) for name in names)]
    body = [[row["method"], *(_control(row, name, scale) for name in names)] for row in rows]
    title = "SP - control, on the same targets [95 % CI]"
    return Table(title, [header, *body] if names else [])


def _control_names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Controls that something is compared with, in the order in which they first appear."""
    return list(
        dict.fromkeys(
            name
            for row in rows
            for name, control in row["controls"].items()
            if "sp_minus_control" in control
        )
    )


def _control_title(name: str) -> str:
    against = compared_with(name)
    return f"{'SP' if against == CONDITIONAL else against} - {name}"


def _control(row: dict[str, Any], name: str, scale: float) -> str:
    if name not in row["controls"]:
        return ""
    figure = row["controls"][name]["sp_minus_control"]
    mean = number(figure["mean"], scale, sign=True)
    return f"{mean} [{interval(figure['ci95'], scale, sign=True)}]"


def _against_first(rows: Sequence[dict[str, Any]], scale: float) -> Table:
    header = ["method - first", "figure", "n", "difference", "95 % CI", "p", "seed sd"]
    body = [
        [
            row["method"],
            "SP" if score == CONDITIONAL else score,
            str(figure["n"]),
            *_difference(figure, scale),
            number(figure["seed_sd"], scale),
        ]
        for row in rows[1:]
        for score, figure in row["minus_first"].items()
    ]
    return Table(f"each method less {rows[0]['method']!r}, on common targets", [header, *body])


def stamp(found: dict[str, Any]) -> list[str]:
    """What a forced comparison says before any figure."""
    if not found["unlike"]:
        return []
    return ["FORCED: these runs are unlike, so a difference may not be the methods':"] + [
        f"  {difference}" for difference in found["unlike"]
    ]


def _closing(found: dict[str, Any]) -> list[str]:
    return [
        found["statistics"],
        *source_lines(found),
        *(f"warning: {text}" for text in found["warnings"]),
        *(f"note: {text}" for text in found["notes"]),
    ]


def source_lines(found: dict[str, Any]) -> list[str]:
    """Where published figures are from, each once."""
    told = (_source(entry) for row in found["methods"] for entry in row["published"])
    return list(dict.fromkeys(told))


def _source(entry: dict[str, Any]) -> str:
    """What a published figure, or a finding without one, is from; and what its +- is."""
    said = entry["finding"] or f"+- is the source's own: {entry['spread']}"
    return f"published, not measured here: {entry['source']}; {said}"


def as_text(found: dict[str, Any]) -> str:
    """For the terminal: aligned tables."""
    blocks = ["\n".join([table.title, *aligned(table.rows)]) for table in tables(found)]
    if lines := stamp(found):
        blocks.insert(0, "\n".join(lines))
    return "\n\n".join([*blocks, "\n".join(_closing(found))])


def as_markdown(found: dict[str, Any]) -> str:
    """The same tables for a page."""
    blocks = ["\n".join(f"**{line.strip()}**  " for line in stamp(found))]
    for table in tables(found):
        header, *body = table.rows
        rule = ["---", *["---:"] * (len(header) - 1)]
        rows = "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (header, rule, *body))
        blocks.append(f"{table.title}\n\n{rows}")
    blocks.append("\n".join(f"- {line}" for line in _closing(found)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def as_csv(found: dict[str, Any]) -> str:
    """One wide row a method; figures as measured and in full, empty where not defined."""
    names = _control_names(found["methods"])
    rows = [_wide(row, names, found["unlike"]) for row in found["methods"]]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _wide(row: dict[str, Any], controls: Sequence[str], unlike: Sequence[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {key: row[key] for key in ("method", "inner", "kernel", "weighting")}
    cells["seeds"] = _listed([run["seed"] for run in row["runs"]])
    for name in ("unconditional", "conditional", "difference"):
        cells |= _figure(name, {**row[name], "seed_sd": row["seed_sd"][name]})
    for name in controls:
        control = row["controls"].get(name, {})
        cells |= _figure(name, control) if control else {}
        cells |= _figure(f"sp_minus_{name}", control.get("sp_minus_control", {}))
    for name, figure in (row["minus_first"] or {}).items():
        cells |= _figure(f"{name}_minus_first", figure)
    cells["steps"] = _listed(row["steps"])
    cells["meta_train_steps"] = _listed(row["meta_train_steps"])
    cells["seconds_per_target"] = row["seconds_per_target"]
    cells |= {"runs": " ".join(r["path"] for r in row["runs"]), "unlike": "; ".join(unlike)}
    return cells | _printed(row["published"])


def _printed(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Others' figures in the unit they are printed in, which their columns' names tell apart."""
    cells: dict[str, Any] = {}
    for name in ("unconditional", "conditional"):
        if printed := published.first(entries, name):
            cells[f"published_{name}"] = printed["mean"]
            cells[f"published_{name}_spread"] = printed["spread"]
    if entries:
        cells["published_sources"] = " | ".join(map(_source, entries))
    return cells


def _figure(name: str, figure: dict[str, Any]) -> dict[str, Any]:
    """A figure's columns: the mean under its own name, the rest under names that begin with it."""
    if not figure:
        return {}
    low, high = figure["ci95"] or (None, None)
    cells = {name: figure["mean"], f"{name}_ci95_low": low, f"{name}_ci95_high": high}
    further = ("sd", "n", "p", "seed_sd")
    return cells | {f"{name}_{key}": figure[key] for key in further if key in figure}


def _listed(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
