"""Where marks lie: scales, ticks, bins; values of any size."""

from __future__ import annotations

import re

import numpy as np
import pytest
from markupsafe import Markup

from metaforge.report.html import charts, marks, svg
from metaforge.report.html.axes import Axes, Scale, shown, span
from metaforge.report.html.charts import Interval, Series


@pytest.mark.parametrize("low", [-3.7, 0.0, 1e-7, 250.0])
@pytest.mark.parametrize("width", [1e-6, 0.3, 7.0, 12345.0])
def test_ticks_lie_within_and_are_few(low, width):
    scale = Scale(low, low + width, 0, 400)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 11
    assert all(low - 1e-9 * width <= tick <= low + width * (1 + 1e-9) for tick in ticks)
    assert len({shown(tick, ticks[1] - ticks[0]) for tick in ticks}) == len(ticks)


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-2.0, 5.0]])
def test_a_span_is_never_empty(values):
    low, high = span(values)
    assert low < min(values) <= max(values) < high


def test_a_line_goes_through_its_points():
    figure = charts.lines(
        "a",
        "t",
        "n = 2",
        [Series("s", 0, [0, 10], [1.0, 3.0], [(0.5, 1.5), (2.0, 4.0)])],
        ("x", "y"),
    )
    axes = Axes.of(span([0, 10], 0.03), span([1, 3, 0.5, 1.5, 2, 4]))
    points = [(axes.x(0), axes.y(1.0)), (axes.x(10), axes.y(3.0))]
    assert f'd="{svg.path(points)}"' in figure.drawing
    band = [(axes.x(0), axes.y(1.5)), (axes.x(10), axes.y(4.0))]
    band += [(axes.x(10), axes.y(2.0)), (axes.x(0), axes.y(0.5))]
    assert f'd="{svg.path(band, closed=True)}"' in figure.drawing


def test_pairs_at_one_place_are_one_larger_mark():
    figure = charts.pairs("a", "t", "n", [(1.0, 2.0)] * 4 + [(3.0, 3.0)], ("x", "y"))
    radii = sorted(float(r) for r in re.findall(r'r="([\d.]+)"', figure.drawing))
    assert radii[0] == 3.0 < radii[1]
    assert "(4 targets)" in figure.drawing


def heights(figure) -> list[int]:
    return [int(n) for n in re.findall(r"<title>[^<]*: (\d+)</title>", figure.drawing)]


def test_a_histogram_counts_every_value():
    values = np.random.default_rng(0).normal(size=500).tolist()
    assert sum(heights(charts.histogram("a", "t", "n", values, "x"))) == 500


@pytest.mark.parametrize("step", [1 / 75, 1.0, 100 / 15])
def test_bins_hold_equally_many_possible_accuracies(step):
    """Else a flat distribution would look like a comb."""
    values = [k * step for k in range(-40, 41) for _ in range(3)]
    found = heights(charts.histogram("a", "t", "n", values, "x"))
    assert sum(found) == len(values)
    assert len(set(found[:-1])) == 1


def test_a_histogram_of_equal_values():
    assert heights(charts.histogram("a", "t", "n", [2.0] * 7, "x")) == [7]


def test_a_forest_colours_what_is_clear_of_zero():
    rows = [
        Interval("clear", 1.0, (0.5, 1.5), "1"),
        Interval("not clear", 0.1, (-0.5, 0.6), "0.1"),
        Interval("undefined", 0.2, None, "0.2"),
    ]
    drawing = charts.forest("a", "t", "n", rows, "gain").drawing
    assert re.findall(r'class="whisker (m\w)"', drawing) == ["m0", "mo"]
    assert drawing.count("<circle") == 3


def test_bars_hang_down_where_weights_are_negative():
    drawing = charts.bars("a", "t", [0.8, 0.4, -0.2])
    tops = [float(y) for y in re.findall(r'<rect x="[^"]*" y="([^"]*)"', drawing)]
    assert tops[0] < tops[1] < tops[2]


def test_every_style_has_a_shape_and_dashes_of_its_own():
    drawn = {marks.mark(style, 0, 0).replace(f"m{style}", "") for style in range(marks.STYLES)}
    assert len(drawn) == marks.STYLES == len({marks.dashes(k) for k in range(marks.STYLES)})


def test_whatever_is_no_markup_is_escaped():
    found = svg.element("text", "<b>", svg.element("g"), class_='"x"', x=1)
    assert found == Markup('<text class="&#34;x&#34;" x="1">&lt;b&gt;<g/></text>')


@pytest.mark.parametrize(
    ("value", "told"), [(-0.001, "0"), (-0.5, "-0.5"), (100.0, "100"), (3.14159, "3.14"), (0, "0")]
)
def test_coordinates(value, told):
    assert f'x="{told}"' in svg.element("g", x=value)
