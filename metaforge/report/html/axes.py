"""Scales, ticks and the frame of a chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from metaforge.report.html import svg

#: Units of an svg, which a page scales: 13 of text are readable on a phone, too.
WIDTH, HEIGHT = 420.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 10.0, 46.0


@dataclass(frozen=True)
class Scale:
    """From values ``low`` to ``high`` to units ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten."""
        step = _step(self.high - self.low, about)
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _step(width: float, about: int) -> float:
    rough = width / about
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def span(values: Iterable[float], room: float = 0.06) -> tuple[float, float]:
    """From below the least to above the greatest, never empty."""
    found = list(values)
    low, high = min(found), max(found)
    margin = room * (high - low) or abs(high) * room or 1.0
    return low - margin, high + margin


def shown(value: float, step: float) -> str:
    """A tick's value with the digits that its step needs."""
    if abs(value) < step / 2:
        return "0"
    if abs(value) >= 1e6 or step < 1e-5:
        told = f"{value:.{max(3, math.floor(math.log10(abs(value) / step)) + 2)}g}"
    else:
        told = f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return told.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Axes:
    """Where a chart's values lie in its svg."""

    x: Scale
    y: Scale
    height: float = HEIGHT

    @classmethod
    def of(cls, x: tuple[float, float], y: tuple[float, float], height: float = HEIGHT) -> Axes:
        return cls(Scale(*x, _LEFT, WIDTH - _RIGHT), Scale(*y, height - _BOTTOM, _TOP), height)

    @property
    def left(self) -> float:
        return self.x.start

    @property
    def bottom(self) -> float:
        return self.y.start

    def frame(self, x_label: str, y_label: str, x_ticks: Sequence[float] | None = None) -> Markup:
        """Grid lines, ticks and what the axes are, with their units."""
        steps = [self._x_step(x_ticks), _step(self.y.high - self.y.low, 5)]
        parts = [*self._columns(x_ticks, steps[0]), *self._rows(steps[1])]
        middle = (self.y.start + self.y.end) / 2
        parts += [
            svg.line(self.left, self.bottom, self.x.end, self.bottom, class_="axis"),
            svg.text(
                x_label, (self.x.start + self.x.end) / 2, self.height - 8, text_anchor="middle"
            ),
            svg.text(
                y_label, 0, 0, text_anchor="middle", transform=f"translate(14 {middle}) rotate(-90)"
            ),
        ]
        return svg.element("g", *parts)

    def _x_step(self, ticks: Sequence[float] | None) -> float:
        return 1.0 if ticks else _step(self.x.high - self.x.low, 5)

    def _columns(self, ticks: Sequence[float] | None, step: float) -> Iterable[Markup]:
        for value in self.x.ticks() if ticks is None else ticks:
            x = self.x(value)
            yield svg.line(x, self.bottom, x, self.y.end, class_="grid")
            yield svg.text(
                shown(value, step), x, self.bottom + 16, text_anchor="middle", class_="tick"
            )

    def _rows(self, step: float) -> Iterable[Markup]:
        for value in self.y.ticks():
            y = self.y(value)
            yield svg.line(self.left, y, self.x.end, y, class_="grid")
            yield svg.text(
                shown(value, step), self.left - 6, y + 4, text_anchor="end", class_="tick"
            )

    def across(self, value: float, kind: str = "zero") -> Markup:
        """A horizontal line through the chart."""
        return svg.line(self.left, self.y(value), self.x.end, self.y(value), class_=kind)

    def upright(self, value: float, kind: str = "zero") -> Markup:
        """A vertical line through the chart."""
        return svg.line(self.x(value), self.bottom, self.x(value), self.y.end, class_=kind)
