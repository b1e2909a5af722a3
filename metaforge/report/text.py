"""The closing table of a run: every figure beside its interval and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaforge import plugins
from metaforge.report import published, selection, verdict
from metaforge.report.format import aligned, interval, number, p_value
from metaforge.rundir import RunDir

HEADER = ["arm", "mean", "95 % CI", "sd", "n", "SP - arm", "95 % CI", "p", "s/target"]


def result_table(results: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and rows. Accuracies are shown in percent, differences in points."""
    unit, scale = _unit(results)
    seconds = results["seconds"]["per_target"]
    difference = results["difference"]
    rows = [
        _row("unconditional (J = 0)", results["unconditional"], difference, scale, None),
        _row(
            f"conditional (J = {results['steps']})",
            results["conditional"],
            None,
            scale,
            seconds.get("conditional"),
        ),
    ]
    for name, control in results["controls"].items():
        rows.append(_row(name, control, control.get("sp_minus_control"), scale, seconds.get(name)))
    return f"{results['recipe']}: {unit}, {results['split']} targets", HEADER, rows


def _unit(results: dict[str, Any]) -> tuple[str, float]:
    """What scores are shown in, and the factor that takes them there."""
    percent = results["metric"].startswith("accuracy")
    return ("accuracy, %", 100.0) if percent else ("mean squared error", 1.0)


def _row(
    name: str,
    figure: dict[str, Any],
    difference: dict[str, Any] | None,
    scale: float,
    seconds: float | None,
) -> list[str]:
    return [
        name,
        number(figure["mean"], scale),
        interval(figure["ci95"], scale),
        number(figure["sd"], scale),
        str(figure["n"]),
        number(difference["mean"], scale, sign=True) if difference else "",
        interval(difference["ci95"], scale, sign=True) if difference else "",
        p_value(difference["p"]) if difference else "",
        f"{seconds:.2f}" if seconds is not None else "",
    ]


def curve_lines(results: dict[str, Any]) -> list[str]:
    """Mean scores after each number of steps, where the recipe asked for more than J.

    The gain is of SP over J = 0, paired, with its interval at each step.
    """
    curve = results["curve"]
    if not curve.get("asked"):
        return []
    unit, scale = _unit(results)
    names = list(curve["mean"])
    means = [[number(value, scale) for value in curve["mean"][name]] for name in names]
    gains = [
        (number(gain["mean"], scale, sign=True), interval(gain["ci95"], scale, sign=True))
        for gain in curve["gain"]
    ]
    rows = [
        [str(step), *at_step, *gain]
        for step, gain, *at_step in zip(curve["steps"], gains, *means, strict=True)
    ]
    counts = curve.get("n", {})  # not all targets need have a control
    fewer = {name: n for name, n in counts.items() if n < max(counts.values())}
    told = [f"{name} (n = {fewer[name]})" if name in fewer else name for name in names]
    header = ["J", *told, f"{names[0]} - (J = 0)", "95 % CI"]
    return [f"{unit}, after each number of steps J", *aligned([header, *rows])]


def closing_lines(results: dict[str, Any], run_dir: Path) -> list[str]:
    """What stands below the table: definitions, warnings, notes, where the files are."""
    lines = [results["statistics"], *run_lines(results), *warning_lines(results)]
    lines += [f"note: {text}" for text in results["notes"]]
    lines.append(f"run folder: {run_dir}")
    return lines


def run_lines(results: Mapping[str, Any]) -> list[str]:
    """The means over several runs of targets, where there are any."""
    runs = results.get("runs")
    if not runs:
        return []
    return [
        f"{name} over {runs['runs']} runs of {runs['targets_each']} targets: mean "
        f"{runs[name]['mean']:.4f}, sd over runs {runs[name]['sd_over_runs']:.4f}"
        for name in ("unconditional", "conditional")
    ]


def warning_lines(results: Mapping[str, Any]) -> list[str]:
    """What speaks against the figures."""
    lines, phase1 = [], results["meta_train"]
    if phase1["skipped"]:
        lines.append(
            f"warning: {phase1['skipped']} of {phase1['steps']} meta-training steps were not "
            "finite and were left out"
        )
    if results["skipped_steps"]:
        lines.append(
            f"warning: {results['skipped_steps']} conditioning steps were not finite "
            "and were skipped"
        )
    return [*lines, *(f"warning: {text}" for text in results["warnings"])]


def render_lines(results: dict[str, Any], run_dir: Path) -> list[str]:
    """The report of a run, line by line, plugins' sections included."""
    title, header, rows = result_table(results)
    lines = [title, *aligned([header, *rows])]
    blocks = [
        verdict.lines(results.get("verdict"), _unit(results)[1]),
        published.lines(results.get("published", ())),
        curve_lines(results),
        selection.lines(results.get("selection"), *_unit(results)),
    ]
    for block in filter(None, blocks):
        lines += ["", *block]
    lines += [""] if any(blocks) else []
    for heading, text in plugins.host().report_sections(results):
        lines += ["", heading, text]
    return [*lines, *closing_lines(results, run_dir)]


def render_text(run_dir: Path) -> str:
    """The report of a finished run's folder. Raises ``DataError`` for any other."""
    folder = RunDir.open(Path(run_dir))
    return "\n".join([*render_lines(folder.results, folder.path), *folder.unsealed])
