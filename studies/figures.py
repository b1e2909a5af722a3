"""Figures of the page, paired over the targets of all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaforge import statistics
from metaforge.comparison.runs import FinishedRun

#: A target by seed and task id; controls of the same recipe meet the same targets.
Scores = dict[tuple[int, int], float]


def scores(runs: Sequence[FinishedRun], arm: str, step: int | None = None) -> Scores:
    """An arm's score of each target after J steps, or after ``step``; empty without the arm.

    ``unconditional`` is J = 0.
    """
    found: Scores = {}
    for run in runs:
        for record in run.records:
            key = (run.seed, record["task_id"])
            if arm == "unconditional":
                found[key] = record["unconditional"]
            elif arm in record["curves"]:
                at = -1 if step is None else record["steps"].index(step)
                found[key] = record["curves"][arm][at]
    return found


def pairs(own: Scores, other: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Both scores of the targets that have both."""
    common = [target for target in own if target in other]
    return np.array([own[t] for t in common]), np.array([other[t] for t in common])


def difference(own: Scores, other: Scores) -> dict[str, Any] | None:
    """``statistics.paired`` of own - other; None where no target has both."""
    a, b = pairs(own, other)
    return statistics.paired(a, b) if len(a) else None


def share(own: Scores, best: Scores, control: Scores) -> dict[str, Any] | None:
    """(own - control) / (best - control), with the interval of a ratio of means.

    None where ``best`` is not clear of ``control``, so that there is nothing to share in.
    """
    common = [target for target in own if target in best and target in control]
    if not common:
        return None
    gained = np.array([own[t] - control[t] for t in common])
    possible = np.array([best[t] - control[t] for t in common])
    return statistics.ratio(gained, possible)


def ratio(own: Scores, control: Scores) -> dict[str, Any] | None:
    """The ratio of two means, of errors say, with its interval."""
    a, b = pairs(own, control)
    return statistics.ratio(a, b) if len(a) else None


def recalled(runs: Sequence[FinishedRun]) -> float | None:
    """Mean share of the recalled tasks that are of the target's own group."""
    shares = [
        record["weights"]["own_group"]
        for run in runs
        for record in run.records
        if record.get("weights", {}).get("own_group") is not None
    ]
    return float(np.mean(shares)) if shares else None
