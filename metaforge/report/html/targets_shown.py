"""A few targets with the bank tasks that they recall, as tables of pictures or names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from metaforge.report.html import charts, marks, svg
from metaforge.report.html.axes import Scale, span
from metaforge.report.html.material import Material

_WIDE, _HIGH = 96.0, 48.0

Sample = dict[str, Any]
#: The ends of x and of y.
Ranges = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class ShownTask:
    """A task in words and as a drawing, which is empty where there is none."""

    names: str
    group: str
    drawing: Markup


class RecalledTask(NamedTuple):
    """A bank task; ``own`` says that it is of the target's group."""

    weight: str
    id: int
    task: ShownTask
    own: bool


@dataclass(frozen=True)
class ShownTarget:
    """A table: the target, and the tasks that it recalls. ``pictured`` says what the drawings are,
    empty where there are none."""

    id: int
    pictured: str
    grouped: bool
    heading: str
    told: str
    task: ShownTask
    weights: Markup
    told_weights: str
    recalled: list[RecalledTask]


def shown(run: Material) -> list[ShownTarget]:
    """The chosen targets of the run's picture, the best first."""
    picture = run.picture
    if picture is None:
        return []
    by_id = {record["task_id"]: record for record in run.records}
    return [
        _target(run, one, by_id.get(one["task_id"]), k) for k, one in enumerate(picture["chosen"])
    ]


def _target(
    run: Material, one: dict[str, Any], record: dict[str, Any] | None, k: int
) -> ShownTarget:
    assert run.picture is not None
    groups, own = run.picture["groups"], one["sample"]["group"]
    told = ""
    if record is not None:
        before, after = record["unconditional"], record["curves"]["conditional"][-1]
        gain = run.unit.told_gain(run.unit.sign * (after - before))
        told = f"{run.unit.told(before)} at J = 0, {run.unit.told(after)} with SP: gain {gain}"
    why = " and ".join(one["why"])
    ranges = _ranges([one["sample"], *(r["sample"] for r in one["recalled"])])
    shown_weights = len(one["weights"])
    return ShownTarget(
        id=one["task_id"],
        pictured=_pictured(one["sample"]),
        grouped=bool(groups),
        heading=f"Target {one['task_id']}: the {why} gain",
        told=told,
        task=_task(one["sample"], groups, ranges, f"target-{k}"),
        weights=charts.bars(f"weights-{k}", f"Weights of target {one['task_id']}", one["weights"])
        if one["weights"]
        else Markup(""),
        told_weights=f"the {shown_weights} largest of {one['kept']} kept weights"
        if shown_weights < one["kept"]
        else f"all {one['kept']} kept weights",
        recalled=[
            RecalledTask(
                f"{r['weight']:.3f}",
                r["id"],
                _task(r["sample"], groups, ranges, f"recalled-{k}-{place}"),
                own >= 0 and r["sample"]["group"] == own,
            )
            for place, r in enumerate(one["recalled"])
        ],
    )


def _pictured(sample: Sample) -> str:
    if sample["picture"] is not None:
        return "a support sample of each class"
    return "" if sample["points"] is None else "support points"


def _task(sample: Sample, groups: list[str], ranges: Ranges | None, identity: str) -> ShownTask:
    group = groups[sample["group"]] if sample["group"] >= 0 else ""
    names = ", ".join(name.removeprefix(f"{group}: ") for name in sample["classes"])
    more = f" and {sample['more']} more" if sample["more"] else ""
    drawing = Markup("")
    if sample["picture"] is not None:
        drawing = svg.element(
            "img",
            src=f"data:image/png;base64,{sample['picture']}",
            alt="a support sample of each class",
            class_="strip",
        )
    elif sample["points"] is not None and ranges is not None:
        drawing = _curve(sample["points"], ranges, identity)
    return ShownTask(f"{names}{more}", group, drawing)


def _ranges(samples: list[Sample]) -> Ranges | None:
    """Common to all that is drawn of a target: the ends of x and of y."""
    points = [point for sample in samples for point in sample["points"] or ()]
    if not points:
        return None
    return span(x for x, _ in points), span(y for _, y in points)


def _curve(points: list[list[float]], ranges: Ranges, identity: str) -> Markup:
    (left, right), (low, high) = ranges
    x, y = Scale(left, right, 1, _WIDE - 1), Scale(low, high, _HIGH - 1, 1)
    dots = (marks.mark(0, x(a), y(b), 2.4) for a, b in points)
    frame = svg.element("rect", x=0.5, y=0.5, width=_WIDE - 1, height=_HIGH - 1, class_="box")
    drawn = svg.picture(identity, "support points", _WIDE, _HIGH, frame, *dots)
    return svg.element("span", drawn, class_="curve")
