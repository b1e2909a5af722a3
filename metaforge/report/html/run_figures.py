"""The figures of a run. Gains are improvements throughout: positive is better."""

from __future__ import annotations

import numpy as np

from metaforge import statistics
from metaforge.arm_names import CONDITIONAL, SP_WITHOUT_TARGET, compared_with
from metaforge.report.format import interval, number
from metaforge.report.html import charts, maps, summaries
from metaforge.report.html.charts import Figure, Series
from metaforge.report.html.material import Material

#: Targets whose pairs are drawn, at most.
_PAIRS = 3000
#: Recorded steps that an axis has room for.
_TICKS = 8
_BAND = "95 % t intervals over targets"


def arm_title(name: str) -> str:
    return {CONDITIONAL: "SP", SP_WITHOUT_TARGET: "SP without target term"}.get(name, name)


def scores(run: Material, arm: str) -> np.ndarray:
    """[n, steps] of the targets that have the arm, in the unit of the page."""
    found = [r["curves"][arm] for r in run.records if arm in r["curves"]]
    return np.array(found) * run.unit.scale


def against_steps(run: Material) -> list[Figure]:
    """Scores after each recorded number of steps, and what each arm gains over J = 0."""
    steps = run.records[0]["steps"]
    if len(steps) < 2:
        return []
    ticks = steps if len(steps) <= _TICKS else None
    arms = list(dict.fromkeys(name for record in run.records for name in record["curves"]))
    found = {name: scores(run, name) for name in arms}
    counts = ", ".join(dict.fromkeys(str(len(values)) for values in found.values()))
    levels = [
        summaries.series(arm_title(name), k, steps, values)
        for k, (name, values) in enumerate(found.items())
    ]
    gains = [
        summaries.series(arm_title(name), k, steps, run.unit.sign * (values - values[:, :1]))
        for k, (name, values) in enumerate(found.items())
    ]
    return [
        charts.lines(
            "score-against-steps",
            "Score against conditioning steps",
            f"Mean over n = {counts} targets after J steps of conditioning; bands: {_BAND} "
            "(filled for SP). The arms share their targets, so that bands that overlap say little "
            "of differences.",
            levels,
            ("conditioning steps J", run.unit.score),
            ticks,
        ),
        charts.lines(
            "gain-against-steps",
            "Gain over J = 0 against conditioning steps",
            f"Mean of the paired gain over J = 0 on the same n = {counts} targets, positive is "
            f"better; bands: {_BAND} (filled for SP), not adjusted for their number.",
            gains,
            ("conditioning steps J", run.unit.gain),
            ticks,
            zero=True,
        ),
    ]


def target_by_target(run: Material) -> list[Figure]:
    """Each target before and after conditioning, and the differences."""
    unit = run.unit
    before = np.array([record["unconditional"] for record in run.records])
    after = np.array([record["curves"][CONDITIONAL][-1] for record in run.records])
    gains = unit.sign * statistics.differences(after, before)
    figure, ends = statistics.summary(gains), None
    if figure["ci95"] is not None:
        ends = (figure["ci95"][0] * unit.scale, figure["ci95"][1] * unit.scale)
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    n, drawn = len(gains), min(len(gains), _PAIRS)
    first = "" if drawn == n else f" (the first {drawn} are drawn)"
    J = run.results["steps"]
    return [
        charts.pairs(
            "before-and-after",
            "Each target without and with conditioning",
            f"n = {n} targets{first}: SP is better on {better}, worse on {worse}, equal on "
            f"{n - better - worse}. Larger marks are several targets at one place; on the line, "
            "nothing is gained.",
            (np.stack([before, after], 1)[:drawn] * unit.scale).tolist(),
            (f"J = 0: {run.unit.score}", f"SP, J = {J}: {run.unit.score}"),
        ),
        charts.histogram(
            "gains",
            "Paired gains of SP over J = 0",
            f"n = {n} targets, positive is better: mean {number(figure['mean'], unit.scale, True)} "
            f"(solid line), 95 % t interval {interval(figure['ci95'], unit.scale, True)} (shaded), "
            f"sd {number(figure['sd'], unit.scale)}. The dashed line is no difference.",
            (gains * unit.scale).tolist(),
            unit.gain,
            [(0.0, "zero"), (figure["mean"] * unit.scale, "mean")],
            ends,
        ),
    ]


def controls(run: Material) -> list[Figure]:
    """What SP has over every control, paired."""
    over = {"J = 0": run.results["difference"]} if run.results["steps"] else {}
    for name, control in run.results["controls"].items():
        if control.get("sp_minus_control"):
            against = compared_with(name)
            who = "" if against == CONDITIONAL else f" ({arm_title(against)} over it)"
            over[f"{name}{who}"] = control["sp_minus_control"]
    rows = [
        summaries.row(run.unit, name, figure)
        for name, figure in over.items()
        if figure["mean"] is not None
    ]
    if not rows:
        return []
    counts = ", ".join(dict.fromkeys(str(figure["n"]) for figure in over.values()))
    caption = (
        f"Mean paired gain of SP over each control on the same targets (n = {counts}), positive is "
        "better for SP; whiskers: 95 % t intervals, not adjusted for their number. Those clear of "
        "zero are coloured."
    )
    return [charts.forest("controls", "SP over its controls", caption, rows, run.unit.gain)]


def sample_sizes(run: Material) -> list[Figure]:
    """How many equal weights the targets' kept weights are worth."""
    found = [record.get("weights", {}).get("effective_sample_size") for record in run.records]
    sizes = [size for size in found if size is not None]
    if not sizes:
        return []
    own = run.picture["chosen"] if run.picture else []
    kept = max((one["kept"] for one in own), default=0)
    caption = (
        f"(sum |w|)^2 / sum w^2 of each target's kept weights, n = {len(sizes)} targets: median "
        f"{np.median(sizes):.1f}, from {min(sizes):.1f} to {max(sizes):.1f}"
        + (f"; M = {kept} tasks are kept, which equal weights would be worth" if kept else "")
        + "."
    )
    title = "Effective sample size of the task weights"
    label = "bank tasks of equal weight"
    return [charts.histogram("sample-sizes", title, caption, sizes, label)]


def training(run: Material) -> list[Figure]:
    """Phase 1: the objective on training tasks, the score on validation tasks."""
    points = run.metrics
    if len(points) < 2:
        return []
    validated = [(p["step"], p["validation"] * run.unit.scale) for p in points if "validation" in p]
    losses = [(p["step"], p["loss"]) for p in points if "loss" in p]
    figures = []
    for identity, title, told, name, unit in (
        ("meta-train-loss", "Meta-training loss", losses, "loss", "loss of a batch of tasks"),
        ("meta-train-validation", "Validation score", validated, "validation", run.unit.score),
    ):
        if len(told) > 1:
            steps, values = zip(*told, strict=True)
            n = len(told)
            caption = f"{n} records of phase 1; {_TRAINED[name]} No band: single values."
            series = [Series(name, 0, steps, values)]
            figures.append(
                charts.lines(identity, title, caption, series, ("meta-training steps", unit))
            )
    return figures


_TRAINED = {
    "loss": "the mean loss of the last step's tasks, which are drawn anew for every step.",
    "validation": "the mean over the same validation tasks at each, from which the best is kept.",
}


def recalled(run: Material) -> list[Figure]:
    """The kernel's matrix and the map of signatures."""
    picture = run.picture
    if picture is None or picture["map"] is None:
        return []
    links = {one["task_id"]: [r["id"] for r in one["recalled"]] for one in picture["chosen"]}
    found = [maps.signatures(picture["map"], picture["groups"], links)]
    if len(picture["kernel"]["groups"]) > 1:
        found.append(maps.kernel(picture["kernel"], picture["groups"]))
    return found
