"""What an interval shows, and how it is told: the vocabulary of the rules in ``limits``.

With the 95 % interval of a gain, a gain is *shown* where the whole interval is above zero,
and one worth having is *excluded* where the whole interval is below ``worth``. Where the
interval is not defined, neither is said.
"""

from __future__ import annotations

from metaforge.report.format import interval, number
from metaforge.verdict.findings import Figure, Findings

#: A share of the own group in the recalled weight below this misses the group, above it sees it.
SEES_GROUP = 0.9


def shown(gain: Figure | None) -> bool:
    """The whole interval is above zero."""
    return gain is not None and gain["ci95"] is not None and gain["ci95"][0] > 0


def loss_shown(gain: Figure | None) -> bool:
    """The whole interval is below zero."""
    return gain is not None and gain["ci95"] is not None and gain["ci95"][1] < 0


def excluded(gain: Figure | None, worth: float) -> bool:
    """The whole interval is below what is worth having."""
    return gain is not None and gain["ci95"] is not None and gain["ci95"][1] < worth


def worth_shown(gain: Figure | None, worth: float) -> bool:
    """A gain is shown, and its mean is worth having."""
    return gain is not None and shown(gain) and gain["mean"] >= worth


def own_group(found: Findings) -> tuple[float, float] | None:
    """Ends of the interval of the own group's share of the recalled weight, or that share itself
    where it is the same for all targets; None where it is of no target."""
    if found.recalled is None or not found.recalled.own_group["n"]:
        return None
    own = found.recalled.by_weight
    low, high = own["ci95"] or (own["mean"], own["mean"])
    return low, high


def sees_group(found: Findings) -> bool:
    """What is recalled is of the target's own group, nearly all of it."""
    ends = own_group(found)
    return ends is not None and ends[0] > SEES_GROUP


def misses_group(found: Findings) -> bool:
    """A part of what is recalled is of other groups."""
    ends = own_group(found)
    return ends is not None and ends[1] < SEES_GROUP


def told(what: str, gain: Figure, found: Findings) -> str:
    """``SP over random_m: +1.20 (95 %: +0.40 .. +2.00)``, accuracies in points."""
    scale = 1.0 if found.regression else 100.0
    figure = number(gain["mean"], scale, sign=True)
    return f"{what}: {figure} (95 %: {interval(gain['ci95'], scale, sign=True)})"


def size(gain: float, found: Findings) -> str:
    """A gain's size in words: ``1.00 points``, ``0.106 of squared error``."""
    return (
        f"{number(gain, 1.0)} of squared error"
        if found.regression
        else f"{number(gain, 100.0)} points"
    )


def with_controls(found: Findings, *names: str) -> str:
    """The override that adds controls to those of the recipe."""
    return f"evaluate.controls=[{','.join(dict.fromkeys((*found.controls, *names)))}]"
