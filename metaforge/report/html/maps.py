"""Where tasks lie: a map of signatures, and the kernel's matrix by groups."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup

from metaforge.pictures import png
from metaforge.report.html import marks, svg
from metaforge.report.html.axes import WIDTH, Axes, span
from metaforge.report.html.charts import Figure

_TALL = 360.0
#: Groups that have a style of their own; the others share one.
_TOLD = marks.STYLES - 1
#: From the least to the greatest, after cividis: even in lightness, and blue to yellow.
_COLOURS = ((0, 32, 77), (57, 72, 108), (107, 109, 113), (157, 147, 116), (254, 232, 87))
#: Groups with a smaller share of the matrix have no room for a name.
_LEAST_NAMED = 0.05


def by_group(groups: Sequence[int]) -> dict[int, int]:
    """The style of each of the most frequent groups (ties by number); the others have none."""
    counted = Counter(group for group in groups if group >= 0)
    first = sorted(counted, key=lambda group: (-counted[group], group))[:_TOLD]
    return {group: style for style, group in enumerate(sorted(first))}


def signatures(
    found: Mapping[str, Any], groups: Sequence[str], links: Mapping[int, list[int]]
) -> Figure:
    """Bank tasks as small marks, targets as outlined ones, and lines from some targets to the
    tasks that they recall (``links``: ids of bank tasks by the target's)."""
    bank, targets = found["bank"], found["targets"]
    styles = by_group([*bank["groups"], *targets["groups"]])
    axes = Axes.of(
        span([*bank["x"], *targets["x"]]), span([*bank["y"], *targets["y"]]), height=_TALL
    )
    shares = [f"{100 * share:.1f} %" for share in (*found["shares"], 0.0)[:2]]
    parts = [axes.frame(f"component 1 ({shares[0]})", f"component 2 ({shares[1]})")]
    place = dict(zip(bank["ids"], zip(bank["x"], bank["y"], strict=True), strict=True))
    at = dict(zip(targets["ids"], zip(targets["x"], targets["y"], strict=True), strict=True))
    parts.append(_cloud(axes, bank, styles, groups, "bank task", "faint", 2.6))
    parts += [
        svg.line(*_at(axes, at[target]), *_at(axes, place[task]), class_="link")
        for target, tasks in links.items()
        for task in tasks
    ]
    parts.append(_cloud(axes, targets, styles, groups, "target", "outlined", 3.6))
    title = "Signatures of bank tasks and targets"
    drawing = svg.picture("signature-map", title, WIDTH, _TALL, *parts)
    total = 100 * sum(found["shares"])
    caption = (
        f"The plane of the first two principal components of the signatures ({found['width']} "
        f"numbers each) of the bank's first {found['fitted']} tasks: {total:.1f} % of their "
        f"variance. {len(bank['ids'])} bank tasks and {len(targets['ids'])} targets; lines lead "
        "from the targets shown above to the bank tasks that weigh most. The kernel sees all "
        "numbers, not these two."
    )
    return Figure("signature-map", title, drawing, caption, _keys(styles, groups))


def _at(axes: Axes, point: tuple[float, float]) -> tuple[float, float]:
    return axes.x(point[0]), axes.y(point[1])


def _cloud(
    axes: Axes,
    tasks: Mapping[str, Any],
    styles: Mapping[int, int],
    groups: Sequence[str],
    what: str,
    kind: str,
    size: float,
) -> Markup:
    columns = (tasks[name] for name in ("ids", "groups", "x", "y"))
    dots = (
        marks.mark(
            styles.get(group, marks.OTHER),
            axes.x(x),
            axes.y(y),
            size,
            f"{what} {i}" + (f", {groups[group]}" if group >= 0 else ""),
        )
        for i, group, x, y in zip(*columns, strict=True)
    )
    return svg.element("g", *dots, class_=kind)


def _keys(styles: Mapping[int, int], groups: Sequence[str]) -> tuple[marks.Key, ...]:
    named = [marks.mark_key(groups[group], style) for group, style in styles.items()]
    others = [] if named and len(groups) <= len(named) else [("other groups" if named else "tasks")]
    return (
        *named,
        *(marks.mark_key(name, marks.OTHER) for name in others),
        marks.mark_key("bank task", marks.OTHER, "faint"),
        marks.mark_key("target", marks.OTHER, "outlined"),
    )


def kernel(found: Mapping[str, Any], groups: Sequence[str]) -> Figure:
    """The sample of K as an image, with its groups named at the left and a bar of its colours."""
    n = len(found["groups"])
    left, side = 110.0, 292.0
    levels = np.array(found["levels"], dtype=np.float64).reshape(n, n) / 255
    parts: list[Markup] = [_image(_coloured(levels), left, 4.0, side, side)]
    parts += _borders(found["groups"], groups, left, side)
    bar = np.linspace(0, 1, 64)[None]
    parts.append(_image(_coloured(bar), left, side + 14, side, 10.0))
    for place, value, anchor in ((0.0, found["low"], "start"), (1.0, found["high"], "end")):
        parts.append(
            svg.text(
                f"{value:.3g}",
                left + place * side,
                side + 42,
                text_anchor=anchor,
                class_="tick",
            )
        )
    parts.append(svg.text("similarity", left + side / 2, side + 42, text_anchor="middle"))
    title = "Similarity of bank tasks"
    drawing = svg.picture("kernel-matrix", title, WIDTH, side + 50, *parts)
    named = " ordered by group" if any(group >= 0 for group in found["groups"]) else ""
    caption = (
        f"k(D, D') / sqrt(k(D, D) k(D', D')) of the bank's first {n} tasks{named}. Colours run "
        "from the least to the greatest value between two tasks; the diagonal, which is 1, is "
        "left out of their range."
    )
    return Figure("kernel-matrix", title, drawing, caption)


def _coloured(levels: np.ndarray) -> np.ndarray:
    """uint8 [h, w, 3] of values in 0..1."""
    stops = np.linspace(0, 1, len(_COLOURS))
    channels = [np.interp(levels, stops, column) for column in zip(*_COLOURS, strict=True)]
    return np.rint(np.stack(channels, -1)).astype(np.uint8)


def _image(pixels: np.ndarray, x: float, y: float, width: float, height: float) -> Markup:
    from PIL import Image

    data = base64.b64encode(png(Image.fromarray(pixels))).decode()
    return svg.element(
        "image",
        href=f"data:image/png;base64,{data}",
        x=x,
        y=y,
        width=width,
        height=height,
        preserveAspectRatio="none",
        class_="pixels",
    )


def _borders(order: Sequence[int], groups: Sequence[str], left: float, side: float) -> list[Markup]:
    """Lines between the groups, and their names where there is room."""
    found, start, n = [], 0, len(order)
    for group, rows in groupby(order):
        count = len(list(rows))
        y, end = (4 + side * place / n for place in (start, start + count))
        if start:
            found.append(svg.line(left - 6, y, left + side, y, class_="border"))
            x = left + side * start / n
            found.append(svg.line(x, 4, x, 4 + side, class_="border"))
        if group >= 0 and count >= _LEAST_NAMED * n:
            name = groups[group]
            told = svg.element("title", name)
            short = name if len(name) <= 15 else f"{name[:14]}\N{HORIZONTAL ELLIPSIS}"
            middle = (y + end) / 2 + 4
            found.append(svg.element("text", told, short, x=left - 8, y=middle, text_anchor="end"))
        start += count
    return found
