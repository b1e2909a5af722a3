"""Phase 2.5: options chosen on validation targets, from a declared grid, never on test.

Every combination of the grid is conditioned on the same validation targets; the one
with the best mean score is taken (the first, if several tie). The number of steps J is
free: it is read off each combination's own curve.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from metaforge.arms import BankFacts
from metaforge.console import Console
from metaforge.contracts import Params
from metaforge.evaluation import Evaluator, curve_at
from metaforge.recipe.schema import Recipe
from metaforge.records import write_json
from metaforge.rundir import RunDir
from metaforge.stages import Parts

_STEPS = "condition.steps"


def select(
    parts: Parts, theta_hat: Params, facts: BankFacts, folder: RunDir, console: Console
) -> Recipe:
    """The recipe with the chosen options in place; ``select.json`` holds all that was tried.

    Combinations already in ``select.jsonl`` are not run again.
    """
    recipe = parts.recipe
    assert recipe.select is not None
    grid = dict(recipe.select.grid)
    steps = sorted({int(value) for value in grid.pop(_STEPS, (recipe.condition.steps,))})
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    tried = folder.lines("select.jsonl")
    with console.stage("select", len(combinations), len(tried.records)) as advance:
        for combination in combinations[len(tried.records) :]:
            tried.append(
                {
                    "options": combination,
                    "steps": steps,
                    "mean": _mean_scores(parts, theta_hat, facts, combination, steps),
                }
            )
            advance(1, "")
    chosen, score = _best(tried.records, parts.source.shape.kind == "regression")
    write_json(
        folder.path / "select.json",
        {
            "split": "val",
            "targets": recipe.select.targets,
            "chosen": chosen,
            "score": score,
            "tried": tried.records,
        },
    )
    console.line(
        f"select: {', '.join(f'{k}={v}' for k, v in chosen.items())} "
        f"(validation {score:.4f}, {recipe.select.targets} targets)"
    )
    return with_values(recipe, chosen)


def with_values(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """A copy of a recipe with dotted keys set, validated anew."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    for dotted, value in values.items():
        *path, last = dotted.split(".")
        node = tree
        for key in path:
            node = node[key]
        node[last] = value
    return Recipe.model_validate(tree)


def _mean_scores(
    parts: Parts, theta_hat: Params, facts: BankFacts, combination: dict[str, Any], steps: list[int]
) -> list[float]:
    """The mean validation score after each number of steps."""
    assert parts.recipe.select is not None
    recipe = with_values(
        parts.recipe,
        {
            **combination,
            _STEPS: steps[-1],
            "condition.record_at": steps,
            "evaluate.controls": [],
            "evaluate.without_target_term": False,
        },
    )
    trial = parts.with_recipe(recipe)
    # Phase 1 validated on the first tasks of the split; selection takes the next ones.
    first = recipe.meta_train.validation_targets
    targets = range(first, first + parts.recipe.select.targets)
    evaluator = Evaluator(
        recipe, parts.source, parts.inner, theta_hat, facts, trial.score("val", targets), "val"
    )
    records = [evaluated.record for evaluated in evaluator.run(targets)]
    at = records[0]["steps"]
    return [float(np.mean(curve_at(records, "conditional", at.index(step)))) for step in steps]


def _best(tried: list[dict[str, Any]], lower_is_better: bool) -> tuple[dict[str, Any], float]:
    sign = -1.0 if lower_is_better else 1.0
    rows = [
        ({**entry["options"], _STEPS: step}, mean)
        for entry in tried
        for step, mean in zip(entry["steps"], entry["mean"], strict=True)
    ]
    return max(rows, key=lambda row: sign * row[1])
