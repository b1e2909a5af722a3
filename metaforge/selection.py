"""Phase 2.5: options chosen on validation targets, from a declared grid, never on test.

Every combination of the grid is conditioned on the same validation targets; the one
with the best mean score is taken (the first, if several tie). The number of steps J is
free: it is read off each combination's own curve.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from metaforge.console import Console
from metaforge.errors import Problem, RecipeError
from metaforge.evaluation import Evaluator, curve_at
from metaforge.metatrain import WarmStart
from metaforge.recipe.grid import LEARNED, LEARNED_FROM
from metaforge.recipe.overrides import split_key
from metaforge.recipe.schema import Recipe
from metaforge.records import write_json
from metaforge.rundir import RunDir
from metaforge.stages import Parts

if TYPE_CHECKING:
    from metaforge.recipe import ResolvedRecipe

_STEPS = "condition.steps"


def check(resolved: ResolvedRecipe, parts: Parts) -> None:
    """Create every kernel and weighting that selection will try, before the long work starts.

    Raises ``RecipeError`` beside a learned weighting, which depends on them in phase 1, and
    what their creation raises.
    """
    if resolved.recipe.select is None:
        return
    grid = resolved.recipe.select.grid
    varied = {key: grid[key] for key in grid if split_key(key)[0] in LEARNED_FROM}
    for values in product(*varied.values()) if varied else ():
        trial = parts.with_recipe(
            resolved.with_values(dict(zip(varied, values, strict=True))).recipe
        )
        for tried in (parts, trial):
            if tried.weighting.learned:
                message = LEARNED.format(tried.recipe.weighting.use)
                raise RecipeError([Problem("select.grid", message)])


def select(
    resolved: ResolvedRecipe,
    parts: Parts,
    start: WarmStart,
    folder: RunDir,
    console: Console,
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
                    "mean": _mean_scores(resolved, parts, start, combination, steps),
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
    return resolved.with_values(chosen).recipe


def _mean_scores(
    resolved: ResolvedRecipe,
    parts: Parts,
    start: WarmStart,
    combination: dict[str, Any],
    steps: list[int],
) -> list[float]:
    """The mean validation score after each number of steps."""
    assert parts.recipe.select is not None
    values = {
        **combination,
        _STEPS: steps[-1],
        "condition.record_at": steps,
        "evaluate.controls": [],
        "evaluate.without_target_term": False,
    }
    recipe = resolved.with_values(values).recipe
    trial = parts.with_recipe(recipe)
    facts = trial.bank_facts(start)
    # Phase 1 validated on the first tasks of the split; selection takes the next ones.
    first = recipe.meta_train.validation_targets
    targets = range(first, first + parts.recipe.select.targets)
    evaluator = Evaluator(
        recipe,
        parts.source,
        parts.inner,
        start,
        facts,
        trial.score("val", targets),
        "val",
        parts.workers,
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
