"""The page of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metaforge import plugins
from metaforge.report import selection, text, verdict
from metaforge.report.format import interval, number, p_value
from metaforge.report.html import run_figures, targets_shown
from metaforge.report.html.material import Material
from metaforge.report.html.render import Table, render
from metaforge.report.published import figure as printed

_HEADER = (
    *("arm", "mean", "95 % CI of the mean", "sd", "n"),
    *("SP - arm", "95 % CI of the difference", "p", "s/target"),
)


class Stat(NamedTuple):
    """A figure at the head of the page."""

    name: str
    value: str
    told: str
    main: bool = False


class Section(NamedTuple):
    heading: str
    text: str


def page(run: Material) -> str:
    """The whole page as HTML; the same files give the same text."""
    results, task = run.results, run.results["task"]
    title, _, rows = text.result_table(results)
    told = results.get("verdict")
    return render(
        "run.html.j2",
        title=results["recipe"],
        subtitle=f"{_tasks(task)}; {results['split']} targets; run {run.path.resolve().name}",
        stats=_stats(run),
        warnings=_warnings(results),
        verdict=told,
        evidence=_evidence(told, run.unit.scale),
        results=Table(title, _HEADER, rows),
        statistics=results["statistics"],
        published=_published(results.get("published", ())),
        against_steps=run_figures.against_steps(run),
        target_by_target=run_figures.target_by_target(run),
        controls=run_figures.controls(run),
        unrecalled=_unrecalled(run),
        shown=targets_shown.shown(run),
        recalled=[*run_figures.sample_sizes(run), *run_figures.recalled(run)],
        trained=_trained(run),
        training=run_figures.training(run),
        selection=_selection(run),
        sections=[Section(*one) for one in plugins.host().report_sections(results)],
        notes=_notes(results),
        environment=Table("what the run ran on", (), _environment(run.env)),
        components=Table("what served it", _SERVED, _components(run.env["components"])),
        recipe=run.recipe,
        resolved=run.resolved,
        citations="\n\n".join(run.citations),
        uncited=run.uncited,
    )


def _tasks(task: Mapping[str, Any]) -> str:
    unit = "way" if task["kind"] == "classification" else "outputs"
    sizes = f"{task['outputs']} {unit}, {task['shots']} shot, {task['queries']} query"
    return f"{task['data']}: {sizes}, {task['kind']}"


def _stats(run: Material) -> list[Stat]:
    results, scale, score = run.results, run.unit.scale, run.unit.score.partition(",")[0]
    steps = results["steps"]
    before, after, gain = (results[k] for k in ("unconditional", "conditional", "difference"))
    found = [
        Stat(
            name,
            run.unit.told(one["mean"]).removeprefix(f"{score} "),
            f"95 % CI {interval(one['ci95'], scale)}, n = {one['n']}",
        )
        for name, one in ((f"{score}, J = 0", before), (f"{score}, SP, J = {steps}", after))
    ]
    ends = None if gain["ci95"] is None else sorted(run.unit.sign * end for end in gain["ci95"])
    p = f", p\N{NO-BREAK SPACE}{p_value(gain['p'])}" if gain["p"] is not None else ""
    told = f"paired 95 % CI {interval(ends, scale, sign=True)}{p}"
    mean = run.unit.told_gain(run.unit.sign * gain["mean"])
    return [*found, Stat("gain of SP over J = 0 (positive is better)", mean, told, True)]


def _warnings(results: Mapping[str, Any]) -> list[str]:
    return [line.removeprefix("warning: ") for line in text.warning_lines(results)]


def _notes(results: Mapping[str, Any]) -> list[str]:
    transductive = ["transductive: yes"] if results["transductive"] else []
    return [*transductive, *text.run_lines(results), *results["notes"]]


def _evidence(told: dict[str, Any] | None, scale: float) -> Table | None:
    if told is None:
        return None
    shown = verdict.said(told, scale)
    rows = [[name, words] for name, words in shown.items() if name not in ("limit", "advice")]
    return Table("what the verdict is drawn from", (), rows)


def _published(entries: Sequence[Mapping[str, Any]]) -> Table | None:
    if not entries:
        return None
    rows = [
        [
            entry["source"],
            printed(entry["unconditional"]),
            printed(entry["conditional"]),
            entry["finding"] or f"+- is {entry['spread']}",
        ]
        for entry in entries
    ]
    return Table("published, not measured here", ("source", "J = 0", "SP", "what it says"), rows)


def _unrecalled(run: Material) -> str:
    if run.picture is None:
        return run.unpictured
    if run.picture["map"] is None:
        return (
            "This weighting ranks no tasks for a target: every target recalls the whole bank, so "
            "that there are no weights, and no map, to show."
        )
    return ""


def _trained(run: Material) -> str:
    phase1 = run.results["meta_train"]
    steps = phase1["steps"]
    told = f"{steps} steps"
    if phase1.get("best_score") is not None:
        best = number(phase1["best_score"], run.unit.scale)
        told += f"; best validation score {best} ({run.unit.score}) at step {phase1['best_step']}"
    told += f"; {phase1['skipped']} steps were not finite and were left out"
    if len(run.metrics) < 2 and steps:
        told += (
            ". No curve: metrics.jsonl has none, as of runs that took their learner from a cache"
        )
    return f"{told}."


def _selection(run: Material) -> Table | None:
    found = run.results.get("selection")
    if found is None:
        return None
    title, header, rows = selection.table(found, run.unit.score, run.unit.scale)
    return Table(title, header, rows)


_SERVED = ("part", "component", "distribution", "version")


def _environment(env: Mapping[str, Any]) -> list[list[str]]:
    names = ("metaforge", "python", "platform", "device", "device_name", "threads", "ranks", "git")
    packages = ", ".join(
        f"{name} {version}" for name, version in env["packages"].items() if version
    )
    rows = [[name, str(env[name])] for name in names if env.get(name) is not None]
    return [*rows, *([["packages", packages]] if packages else [])]


def _components(found: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    return [[part, one["name"], one["distribution"], one["version"]] for part, one in found.items()]
