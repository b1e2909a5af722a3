"""Scores over targets as lines with bands, and differences as intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaforge import statistics
from metaforge.report.format import interval, number
from metaforge.report.html.charts import Interval, Series
from metaforge.report.html.units import Unit


def series(name: str, style: int, steps: Sequence[int], values: np.ndarray) -> Series:
    """Means of [n targets, steps] with their 95 % t intervals."""
    figures = [statistics.summary(column) for column in values.T]
    ends = [None if one["ci95"] is None else tuple(one["ci95"]) for one in figures]
    means = [one["mean"] for one in figures]
    if ends[0] is None and means[0] == 0:
        ends[0] = (0.0, 0.0)  # a gain over J = 0 begins at zero for every target
    return Series(name, style, steps, means, ends)


def row(unit: Unit, name: str, figure: Mapping[str, Any]) -> Interval:
    """A difference of scores as an improvement, in words too."""
    mean = unit.sign * figure["mean"]
    ends = None if figure["ci95"] is None else sorted(unit.sign * end for end in figure["ci95"])
    told = f"{number(mean, unit.scale, sign=True)} ({interval(ends, unit.scale, sign=True)})"
    drawn = None if ends is None else (ends[0] * unit.scale, ends[1] * unit.scale)
    return Interval(name, mean * unit.scale, drawn, told)
