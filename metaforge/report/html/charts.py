"""The charts: lines with bands, pairs, histograms, intervals, bars. Values come in the unit that
their axis names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from metaforge.report.html import marks, svg
from metaforge.report.html.axes import HEIGHT, WIDTH, Axes, Scale, shown, span
from metaforge.report.html.marks import Key


@dataclass(frozen=True)
class Figure:
    """A drawing with its legend; ``caption`` says n and what is drawn, ``title`` what it shows."""

    id: str
    title: str
    drawing: Markup
    caption: str
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Series:
    """A line: values at x, and the ends of their intervals where there are any."""

    name: str
    style: int
    x: Sequence[float]
    y: Sequence[float]
    ends: Sequence[tuple[float, float] | None] = ()


def lines(
    identity: str,
    title: str,
    caption: str,
    series: Sequence[Series],
    labels: tuple[str, str],
    x_ticks: Sequence[float] | None = None,
    zero: bool = False,
) -> Figure:
    """Lines over a common x, with bands; ``zero`` draws the line of no difference."""
    heights = [
        v for one in series for v in (*one.y, *(e for ends in one.ends if ends for e in ends))
    ]
    axes = Axes.of(
        span((v for one in series for v in one.x), 0.03), span([*heights, *([0.0] * zero)])
    )
    parts = [axes.frame(*labels, x_ticks), *([axes.across(0.0)] if zero else [])]
    parts += [_band(one, axes, one is series[0]) for one in series]
    parts += [_line(one, axes) for one in reversed(series)]  # the first on top
    drawing = svg.picture(identity, title, WIDTH, HEIGHT, *parts)
    keys = tuple(marks.line_key(one.name, one.style) for one in series if len(series) > 1)
    return Figure(identity, title, drawing, caption, keys)


def _band(one: Series, axes: Axes, filled: bool) -> Markup:
    """The intervals of a line: filled of one, the outlines of others, which lie over it."""
    known = [(x, *ends) for x, ends in zip(one.x, one.ends, strict=False) if ends is not None]
    over = [(axes.x(x), axes.y(high)) for x, _, high in known]
    under = [(axes.x(x), axes.y(low)) for x, low, _ in known]
    colour = marks.colour(one.style)
    if len(known) < 2:
        return Markup("")
    if filled:
        outline = svg.path([*over, *reversed(under)], closed=True)
        return svg.element("path", d=outline, class_=f"band {colour}")
    edges = (
        svg.element(
            "path",
            d=svg.path(edge),
            class_=f"edge {colour}",
            stroke_dasharray=marks.dashes(one.style),
        )
        for edge in (over, under)
    )
    return svg.element("g", *edges)


def _line(one: Series, axes: Axes) -> Markup:
    points = [(axes.x(x), axes.y(y)) for x, y in zip(one.x, one.y, strict=True)]
    kind = f"line {marks.colour(one.style)}"
    drawn = svg.element(
        "path", d=svg.path(points), class_=kind, stroke_dasharray=marks.dashes(one.style)
    )
    dots = (
        marks.mark(one.style, *point, title=f"{one.name}, {x:g}: {y:.4g}")
        for point, x, y in zip(points, one.x, one.y, strict=True)
    )
    return svg.element("g", drawn, *(dots if len(points) <= 40 else ()))


def pairs(
    identity: str,
    title: str,
    caption: str,
    points: Sequence[tuple[float, float]],
    labels: tuple[str, str],
) -> Figure:
    """A mark for each pair, its area by how many there are, and the line where both are equal."""
    ends = span([value for pair in points for value in pair])
    axes = Axes.of(ends, ends, height=340.0)
    equal = svg.line(
        axes.x(ends[0]), axes.y(ends[0]), axes.x(ends[1]), axes.y(ends[1]), class_="zero"
    )
    counted = Counter(
        (round(axes.x(x), 1), round(axes.y(y), 1), f"{x:.4g}, {y:.4g}") for x, y in points
    )
    most = max(counted.values())
    dots = [
        marks.mark(0, x, y, 3.0 + 4.0 * ((count - 1) / most) ** 0.5, _times(told, count))
        for (x, y, told), count in sorted(counted.items())
    ]
    cloud = svg.element("g", *dots, class_="cloud")
    drawing = svg.picture(identity, title, WIDTH, 340.0, axes.frame(*labels), equal, cloud)
    return Figure(identity, title, drawing, caption)


def _times(told: str, count: int) -> str:
    return told if count == 1 else f"{told} ({count} targets)"


def histogram(
    identity: str,
    title: str,
    caption: str,
    values: Sequence[float],
    label: str,
    lines_at: Sequence[tuple[float, str]] = (),
    interval: tuple[float, float] | None = None,
) -> Figure:
    """Counts in bins of equal width; upright lines ``(at, class)`` and a shaded interval."""
    edges = _edges(np.asarray(values, dtype=np.float64))
    heights, _ = np.histogram(values, edges)
    low, high = span([edges[0], edges[-1], *(at for at, _ in lines_at)], 0.02)
    axes = Axes.of((low, high), (0.0, max(1.0, float(heights.max())) * 1.06))
    bars = [
        _bar(axes, left, right, height)
        for left, right, height in zip(edges, edges[1:], heights, strict=False)
        if height
    ]
    parts = [axes.frame(label, "targets"), svg.element("g", *bars)]
    parts += [_shade(axes, interval)] if interval else []
    parts += [axes.upright(at, kind) for at, kind in lines_at]
    return Figure(identity, title, svg.picture(identity, title, WIDTH, HEIGHT, *parts), caption)


def _edges(x: np.ndarray) -> np.ndarray:
    """Of bins of equal width; where values are multiples of a step, as those of accuracies are,
    each bin has as many of them."""
    about = int(np.clip(np.ceil(np.sqrt(len(x))), 5, 30))
    low, high = float(x.min()), float(x.max())
    if high == low:
        half = abs(low) * 0.05 or 0.5
        return np.array([low - half, low + half])
    gaps = np.diff(np.unique(x))
    step = float(gaps[gaps > 1e-9 * (high - low)].min())
    places = (x - low) / step
    if np.abs(places - np.rint(places)).max() > 1e-3:
        return np.linspace(low, high, about + 1)
    each = step * np.ceil((high - low) / step / about)
    return np.arange(low - step / 2, high + each, each)


def _bar(axes: Axes, left: float, right: float, height: float) -> Markup:
    x, top = axes.x(left), axes.y(height)
    told = svg.element("title", f"{left:.4g} to {right:.4g}: {height}")
    width = max(axes.x(right) - x - 1, 0.5)
    return svg.element(
        "rect", told, x=x + 0.5, y=top, width=width, height=axes.bottom - top, class_="bars"
    )


def _shade(axes: Axes, interval: tuple[float, float]) -> Markup:
    x, end = (axes.x(value) for value in interval)
    height = axes.bottom - axes.y.end
    return svg.element("rect", x=x, y=axes.y.end, width=end - x, height=height, class_="shade")


@dataclass(frozen=True)
class Interval:
    """A row of a forest: a mean and its interval, told in words at its right."""

    name: str
    mean: float
    ends: tuple[float, float] | None
    told: str


def forest(identity: str, title: str, caption: str, rows: Sequence[Interval], label: str) -> Figure:
    """Intervals below each other, against the line of no difference."""
    each, top, left, right = 40.0, 8.0, 14.0, WIDTH - 14.0
    bottom = top + each * len(rows)
    values = [v for row in rows for v in (row.mean, *(row.ends or ()))]
    scale = Scale(*span([*values, 0.0], 0.05), left, right)
    ticks = scale.ticks(6)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    parts = [
        svg.text(shown(tick, step), scale(tick), bottom + 16, text_anchor="middle", class_="tick")
        for tick in ticks
    ]
    parts += [_interval(row, scale, ticks, top + each * k) for k, row in enumerate(rows)]
    parts.append(svg.text(label, WIDTH / 2, bottom + 36, text_anchor="middle"))
    drawing = svg.picture(identity, title, WIDTH, bottom + 46, *parts)
    return Figure(identity, title, drawing, caption)


def _interval(row: Interval, scale: Scale, ticks: Sequence[float], top: float) -> Markup:
    """Names above and lines below them, so that neither crosses the other."""
    y = top + 29
    clear = row.ends is not None and (row.ends[0] > 0 or row.ends[1] < 0)
    style = 0 if clear else marks.OTHER
    parts = [
        svg.text(row.name, scale.start, top + 14),
        svg.text(row.told, scale.end, top + 14, text_anchor="end", class_="tick"),
        *(svg.line(scale(at), y - 10, scale(at), y + 10, class_="grid") for at in ticks),
        svg.line(scale(0.0), y - 10, scale(0.0), y + 10, class_="zero"),
    ]
    if row.ends is not None:
        low, high = map(scale, row.ends)
        parts.append(svg.line(low, y, high, y, class_=f"whisker {marks.colour(style)}"))
    return svg.element("g", *parts, marks.mark(style, scale(row.mean), y, 4.5))


def bars(identity: str, title: str, values: Sequence[float], height: float = 64.0) -> Markup:
    """Values side by side, as a small drawing without axes; negative ones hang down."""
    low, high = min(0.0, *values), max(0.0, *values)
    y = Scale(low, high if high > low else 1.0, height - 2, 2)
    each = WIDTH / len(values)
    drawn = []
    for place, value in enumerate(values):
        top, foot = sorted((y(value), y(0.0)))
        told = svg.element("title", f"{place + 1}: {value:.3g}")
        drawn.append(
            svg.element(
                "rect",
                told,
                x=each * place + 0.1 * each,
                y=top,
                width=0.8 * each,
                height=max(foot - top, 0.4),
                class_="bars",
            )
        )
    base = svg.line(0, y(0.0), WIDTH, y(0.0), class_="axis")
    return svg.picture(identity, title, WIDTH, height, *drawn, base)
