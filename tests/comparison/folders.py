"""Run folders written by hand, as finished runs leave them; no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metaforge import results
from metaforge.recipe import load
from tests.small import SMALL

RECIPE = {**SMALL, "evaluate": {"targets": 12, "controls": ["random_m"]}}
TASK = {
    "data": "glyphs",
    "licence": "none",
    "kind": "classification",
    "input_shape": [64],
    "outputs": 5,
    "shots": 5,
    "queries": 15,
}

Records = list[dict[str, Any]]


def records(seed: int, gain: float, ids: Iterable[int] = range(12), salt: int = 0) -> Records:
    """Targets whose level varies far more than what conditioning adds to it."""
    found = []
    for place, i in enumerate(ids):
        level = float(np.random.default_rng([seed, i]).uniform(0.2, 0.8))
        noise = float(np.random.default_rng([seed, i, salt, 1]).normal(scale=0.01))
        found.append(
            {
                "target": place,
                "task_id": i,
                "classes": [f"class {seed} {i}"],
                "support": [[i]],
                "unconditional": level,
                "steps": [0, 6],
                "curves": {
                    "conditional": [level, level + gain + noise],
                    "random_m": [level, level + noise / 2],
                },
                "weights": {
                    "alpha_sum": gain,
                    "alpha_negative": 0.5,
                    "effective_sample_size": 5.0,
                    **dict.fromkeys(("own_group", "own_group_weight", "own_group_bank")),
                },
            }
        )
    return found


def write_run(
    path: Path,
    *overrides: str,
    gain: float = 0.0,
    targets: Records | None = None,
    change: Callable[[dict[str, Any]], object] = lambda found: None,
    task: Mapping[str, Any] | None = None,
) -> Path:
    """A finished run's folder; ``change`` alters ``results.json`` before it is written."""
    resolved = load(RECIPE, overrides)
    recipe = resolved.recipe
    if targets is None:
        targets = records(recipe.seed, gain, salt=len(recipe.weighting.use))
    path.mkdir(parents=True)
    (path / "artifacts").mkdir()
    (path / "resolved.yaml").write_text(resolved.to_yaml())
    found = {
        "recipe": recipe.name,
        "metric": "accuracy (higher is better)",
        "statistics": "ci95",
        "curve": {"steps": [0, 6], "mean": {"conditional": [0.5, 0.5 + gain]}},
        "skipped_steps": 0,
        **results.figures(targets),
        "split": recipe.evaluate.split,
        "task": {**TASK, "fingerprint": f"{recipe.seed:032x}", **(task or {})},
        "steps": recipe.condition.steps,
        "meta_train": {"steps": recipe.meta_train.steps, "skipped": 0},
        "transductive": False,
        "notes": list(resolved.notes),
        "warnings": [],
        "seconds": {"per_target": {"conditional": 0.25}},
    }
    change(found)
    write_json(path / "results.json", found)
    write_lines(path / "targets.jsonl", targets)
    write_json(path / "status.json", {"state": "done", "stage": "results"})
    write_json(path / "env.json", {"engine_digest": "e0", "packages": {}, "components": {}})
    return path


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def write_lines(path: Path, values: Records) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def read_lines(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]
