"""The two plots of the page: gain against steps J, and against the size of the bank N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from metaforge.comparison.runs import FinishedRun
from studies.figures import difference, scores

#: Arms of the plot of steps: what they are called there.
ARMS = {
    "conditional": "SP",
    "random_m": "random M",
    "oracle": "oracle",
    "target_only": "target term alone",
}


def over_steps(panels: Mapping[str, Sequence[FinishedRun]], path: Path) -> None:
    """Points over J = 0 after each number of steps, a panel a data set."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False)
    for (title, runs), axis in zip(panels.items(), axes[0], strict=True):
        steps = runs[0].records[0]["steps"]
        for arm, name in ARMS.items():
            if not scores(runs, arm):
                continue
            start = scores(runs, "unconditional")
            found = [difference(scores(runs, arm, step), start) for step in steps]
            _line(axis, steps, found, name)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("steps J")
        axis.set_ylabel("points over J = 0")
    axes[0][0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def over_bank(sizes: Mapping[int, Sequence[FinishedRun]], path: Path) -> None:
    """SP and the oracle, in points over random M, for each size of the bank."""
    figure, axis = pyplot.subplots(figsize=(4.6, 3.4))
    for arm in ("conditional", "oracle"):
        found = [difference(scores(r, arm), scores(r, "random_m")) for r in sizes.values()]
        _line(axis, list(sizes), found, ARMS[arm])
    axis.set_xscale("log")
    axis.set_xlabel("bank tasks N")
    axis.set_ylabel("points over random M")
    axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _line(axis: Any, x: Sequence[int], found: Sequence[Any], name: str) -> None:
    """Means in points, with their 95 % intervals as a band."""
    means = [100 * one["mean"] for one in found]
    ends = [one["ci95"] or (one["mean"], one["mean"]) for one in found]
    (line,) = axis.plot(x, means, marker="o", markersize=3, label=name)
    low, high = zip(*ends, strict=True)
    axis.fill_between(
        x, [100 * v for v in low], [100 * v for v in high], alpha=0.15, color=line.get_color()
    )
    axis.axhline(0, color="0.6", linewidth=0.6)


def _save(figure: Any, path: Path) -> None:
    """The same figures give the same bytes: no date, and fixed names of elements."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
