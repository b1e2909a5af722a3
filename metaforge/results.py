"""``results.json``: per-target records turned into figures with n, interval and comparison.

Scores are as measured: accuracy in 0..1 (higher is better) or mean squared error (lower
is better); ``metric`` says which. All comparisons are paired on the same targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metaforge import statistics
from metaforge.arm_names import CONDITIONAL, compared_with
from metaforge.recipe.published import matching
from metaforge.recipe.schema import PublishedFigure, Recipe

Records = list[dict[str, Any]]


def compute(recipe: Recipe, records: Records, regression: bool) -> dict[str, Any]:
    """The figures of a run, from its targets' records alone."""
    results: dict[str, Any] = {
        "metric": "mean squared error (lower is better)"
        if regression
        else "accuracy (higher is better)",
        **figures(records),
        "statistics": statistics.METHOD,
        "published": _published(recipe),
        "curve": _curves(records, recipe.condition.record_at is not None),
        "weights": _weights(records),
        "skipped_steps": sum(sum(r.get("skipped_steps", {}).values()) for r in records),
    }
    if not regression:
        results["macro_accuracy"] = {
            name: statistics.summary(
                [r["macro_accuracy"][name] for r in records if name in r["macro_accuracy"]]
            )
            for name in _arm_names(records)
        }
    if recipe.evaluate.runs > 1:
        results["runs"] = _over_runs(recipe, _unconditional(records), _final(records, CONDITIONAL))
    results["warnings"] = _warnings(recipe, records)
    return results


def figures(records: Records) -> dict[str, Any]:
    """Unconditional, conditional, their paired difference, and every control, over targets."""
    unconditional = _unconditional(records)
    final = {name: _final(records, name) for name in _arm_names(records)}
    return {
        "unconditional": statistics.summary(unconditional),
        "conditional": statistics.summary(final[CONDITIONAL]),
        "difference": statistics.paired(final[CONDITIONAL], unconditional),
        "controls": {
            name: _control(final, name, unconditional) for name in final if name != CONDITIONAL
        },
    }


def _unconditional(records: Records) -> np.ndarray:
    return np.array([r["unconditional"] for r in records])


def _arm_names(records: Records) -> list[str]:
    return list(dict.fromkeys(name for r in records for name in r["curves"]))


def _final(records: Records, arm: str) -> np.ndarray:
    """[n] scores after J steps; NaN where a target lacks the arm (no task of its group)."""
    return np.array([r["curves"][arm][-1] if arm in r["curves"] else np.nan for r in records])


def _control(final: dict[str, np.ndarray], name: str, unconditional: np.ndarray) -> dict[str, Any]:
    values, reference = final[name], compared_with(name)
    has = ~np.isnan(values)
    entry = {
        **statistics.summary(values[has]),
        "minus_unconditional": statistics.paired(values[has], unconditional[has]),
    }
    if name != reference:
        entry["sp_minus_control"] = statistics.paired(final[reference][has], values[has])
        entry["compared_with"] = reference
    return entry


def _published(recipe: Recipe) -> list[dict[str, Any]]:
    """What others printed for these settings; accuracies in percent, as printed."""
    return [
        {
            "source": entry.source,
            "when": {str(at[-1]): value for at, value in entry.conditions()},
            "unconditional": _printed(entry.unconditional),
            "conditional": _printed(entry.conditional),
            "spread": entry.spread,
            "finding": entry.finding,
        }
        for entry in matching(recipe)
    ]


def _printed(figure: PublishedFigure | None) -> dict[str, float] | None:
    return None if figure is None else {"mean": figure[0], "spread": figure[1]}


def _curves(records: Records, asked: bool) -> dict[str, Any]:
    """Mean score at every recorded step, and SP's gain over J = 0 with its interval.

    The headline step J was declared beforehand. ``asked``: the recipe named the steps.
    """
    curves, counts = {}, {}
    for name in _arm_names(records):
        values = np.array([r["curves"][name] for r in records if name in r["curves"]])
        curves[name], counts[name] = [float(v) for v in values.mean(0)], len(values)
    own = np.array([r["curves"][CONDITIONAL] for r in records])
    gains = [statistics.paired(at_step, own[:, 0]) for at_step in own.T]
    return {
        "steps": records[0]["steps"],
        "asked": asked,
        "n": counts,
        "mean": curves,
        "gain": gains,
    }


def _weights(records: Records) -> dict[str, Any] | None:
    """What the task weights looked like, averaged over targets."""
    found = [r["weights"] for r in records if "weights" in r]
    if not found:
        return None
    keys = dict.fromkeys(
        key for w in found for key, value in w.items() if isinstance(value, int | float)
    )
    return {
        key: statistics.summary([w[key] for w in found if w.get(key) is not None]) for key in keys
    }


def _over_runs(
    recipe: Recipe, unconditional: np.ndarray, conditional: np.ndarray
) -> dict[str, Any]:
    """The paper's protocol: mean and standard deviation over R runs' means."""
    shape = (recipe.evaluate.runs, recipe.evaluate.targets)

    def over(values: np.ndarray) -> dict[str, float]:
        means = values.reshape(shape).mean(1)
        return {"mean": float(means.mean()), "sd_over_runs": float(means.std(ddof=1))}

    return {
        "runs": shape[0],
        "targets_each": shape[1],
        "unconditional": over(unconditional),
        "conditional": over(conditional),
    }


def _warnings(recipe: Recipe, records: Records) -> list[str]:
    found, n = [], len(records)
    if "oracle" in recipe.evaluate.controls and "oracle" not in _arm_names(records):
        found.append("control oracle is left out: no bank task is of the group of any target")
    if n < 100:
        found.append(f"only {n} targets: intervals are wide; 600 is the convention of the field")
    return found
