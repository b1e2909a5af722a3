"""How series are told apart: by colour, by the shape of a mark and by the dashes of a line."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from metaforge.report.html import svg

#: Colours of style.css after Okabe and Ito, whom the colour-blind can follow; shapes; dashes.
_SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down", "bar")
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4")
STYLES = len(_SHAPES)
#: The style of what is of no series.
OTHER = -1


class Key(NamedTuple):
    """A line of a legend."""

    name: str
    swatch: Markup


def colour(style: int) -> str:
    return "mo" if style == OTHER else f"m{style % STYLES}"


def mark(style: int, x: float, y: float, size: float = 3.5, title: str = "") -> Markup:
    """A mark of a series, which says its title where the pointer rests on it."""
    told = (svg.element("title", title),) if title else ()
    shape = "circle" if style == OTHER else _SHAPES[style % STYLES]
    if shape == "circle":
        return svg.element("circle", *told, cx=x, cy=y, r=size, class_=colour(style))
    points = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "triangle": ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
        "down": ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "bar": ((-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)),
        "cross": _CROSS,
    }[shape]
    outline = svg.path(((x + a * size, y + b * size) for a, b in points), closed=True)
    return svg.element("path", *told, d=outline, class_=colour(style))


_CROSS = tuple(
    (a * 0.45, b * 0.45)
    for a, b in (
        *((-1, -3), (1, -3), (1, -1), (3, -1), (3, 1), (1, 1)),
        *((1, 3), (-1, 3), (-1, 1), (-3, 1), (-3, -1), (-1, -1)),
    )
)


def dashes(style: int) -> str | None:
    return _DASHES[style % STYLES]


def line_key(name: str, style: int) -> Key:
    """Of a legend: the line with its mark."""
    parts = (
        svg.line(1, 7, 31, 7, class_=f"line {colour(style)}", stroke_dasharray=dashes(style)),
        mark(style, 16, 7),
    )
    return Key(name, svg.element("svg", *parts, viewBox="0 0 32 14", aria_hidden="true"))


def mark_key(name: str, style: int, kind: str = "") -> Key:
    """Of a legend: the mark alone; ``kind`` is a class of style.css on it."""
    drawn = svg.element("g", mark(style, 16, 7, 4.5), class_=kind or None)
    return Key(name, svg.element("svg", drawn, viewBox="0 0 32 14", aria_hidden="true"))
