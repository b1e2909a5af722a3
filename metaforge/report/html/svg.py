"""SVG elements as escaped text: small, readable in any colours, and text stays text."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Child = Markup | str


def element(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """``<name ...>children</name>``; an attribute's ``_`` is ``-`` (and at its end nothing, as in
    ``class_``); those that are None are left out. Whatever is no Markup is escaped."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(children)
    return Markup(f"<{name}{told}/>" if not children else f"<{name}{told}>{inner}</{name}>")


def text(words: str, x: float, y: float, **attributes: str | float | None) -> Markup:
    return element("text", words, x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float | None) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def path(points: Iterable[tuple[float, float]], closed: bool = False) -> str:
    """What ``d`` of a path says for straight lines through points."""
    told = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return f"M{told}{'Z' if closed else ''}"


def picture(identity: str, title: str, width: float, height: float, *parts: Child) -> Markup:
    """An ``svg`` that scales to its place, with a name for those who do not see it."""
    named = element("title", title, id=f"{identity}-title")
    box = f"0 0 {_number(width)} {_number(height)}"
    return element(
        "svg", named, *parts, viewBox=box, role="img", aria_labelledby=f"{identity}-title"
    )


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Hundredths of a unit are not to be seen."""
    told = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if told == "-0" else told
