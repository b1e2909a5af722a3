"""Folders of finished runs with all that a page shows, written by hand; no torch."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np

from metaforge import results, statistics
from metaforge.pictures import strip
from metaforge.recipe import load
from tests.comparison.folders import RECIPE, TASK, read_lines, write_json, write_lines

STEPS = [0, 2, 4, 6]
GROUPS = ["letters", "typefaces"]
TRIED = {
    "rank": 1,
    "options": {"condition.top_m": 10},
    "steps": 6,
    "mean": 0.6,
    "minus_chosen": 0.0,
    "targets": 8,
    "dropped_in_rung": None,
    "failed": None,
}
SELECTION: dict[str, Any] = {
    "targets": 8,
    "in_grid": 2,
    "conditionings": 16,
    "chosen": {"condition.top_m": 10},
    "tried": [TRIED, {**TRIED, "rank": 2, "minus_chosen": -0.01}],
    "warnings": [],
}


def targets(n: int, regression: bool = False) -> list[dict[str, Any]]:
    """Records with two arms; accuracies of 75 queries, or errors."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(n):
        level = rng.uniform(0.2, 0.8)
        curves = {
            arm: [level, *(level + gain * k / 3 + rng.normal(scale=0.03) for k in (1, 2, 3))]
            for arm, gain in (("conditional", 0.04), ("random_m", 0.01))
        }
        if not regression:
            curves = {arm: [round(v * 75) / 75 for v in curve] for arm, curve in curves.items()}
        found.append(
            {
                "target": i,
                "task_id": i,
                "classes": [f"class {i} {k}" for k in range(5)],
                "unconditional": curves["conditional"][0],
                "steps": STEPS,
                "curves": curves,
                "macro_accuracy": {} if regression else {"conditional": 0.5, "random_m": 0.5},
                "weights": {
                    "effective_sample_size": float(rng.uniform(3, 9)),
                    "alpha_negative": 0.5,
                    **dict.fromkeys(("own_group", "own_group_weight", "own_group_bank")),
                },
            }
        )
    return found


def sample(task_id: int, group: int = 0, name: str = "class") -> dict[str, Any]:
    pixels = np.random.default_rng(task_id).integers(0, 256, (5, 1, 28, 28), dtype=np.uint8)
    return {
        "group": group,
        "classes": [f"{name} {task_id} {k}" for k in range(5)],
        "more": 0,
        "picture": base64.b64encode(strip(pixels)).decode(),
        "points": None,
    }


def picture(n: int) -> dict[str, Any]:
    """What a run of n targets keeps to be shown."""
    rng = np.random.default_rng(1)

    def places(count: int) -> dict[str, Any]:
        x, y = rng.normal(size=(2, count)).round(4).tolist()
        return {
            "ids": list(range(count)),
            "groups": [i % 2 for i in range(count)],
            "x": x,
            "y": y,
        }

    weights = np.sort(rng.random(10))[::-1]
    weights /= weights.sum()
    chosen = [
        {
            "why": [why],
            "task_id": place,
            "sample": sample(place),
            "kept": 10,
            "weights": weights.round(4).tolist(),
            "recalled": [
                {"id": i, "weight": float(weights[i]), "sample": sample(i, i % 2)} for i in range(6)
            ],
        }
        for place, why in enumerate(["best", "median", "worst"])
    ]
    return {
        "groups": GROUPS,
        "chosen": chosen[:n],
        "kernel": {
            "groups": [0] * 20 + [1] * 20,
            "low": 0.0,
            "high": 0.9,
            "levels": rng.integers(0, 256, 1600).tolist(),
        },
        "map": {
            "shares": [0.6, 0.2],
            "fitted": 50,
            "width": 64,
            "bank": places(60),
            "targets": places(min(n, 300)),
        },
    }


def write_page_run(path: Path, n: int = 30, regression: bool = False, shown: bool = True) -> Path:
    """A finished run's folder."""
    records = targets(n, regression)
    resolved = load(RECIPE)
    found: dict[str, Any] = {
        **results.compute(resolved.recipe, records, regression),
        "recipe": "small",
        "split": "test",
        "task": {
            **TASK,
            "fingerprint": "0" * 32,
            "kind": "regression" if regression else "classification",
        },
        "steps": 6,
        "statistics": statistics.METHOD,
        "meta_train": {"steps": 60, "best_step": 60, "best_score": 0.7, "skipped": 0},
        "transductive": False,
        "selection": SELECTION,
        "notes": ["a note"],
        "seconds": {"per_target": {"conditional": 0.25}},
    }
    (path / "artifacts").mkdir(parents=True)
    (path / "resolved.yaml").write_text(resolved.to_yaml())
    (path / "recipe.yaml").write_text("name: small\n")
    write_json(path / "results.json", found)
    write_lines(path / "targets.jsonl", records)
    write_lines(
        path / "metrics.jsonl",
        [{"step": k, "validation": 0.5 + k / 300, "loss": 1.0 - k / 300} for k in (0, 20, 40, 60)],
    )
    write_json(path / "status.json", {"state": "done", "stage": "results"})
    part = {"kind": "dataset", "name": "glyphs", "distribution": "metaforge", "version": "0.1"}
    env = {"engine_digest": "e0", "packages": {"torch": "2.13"}, "components": {"data": part}}
    write_json(path / "env.json", {**env, "python": "3.11", "device": "cpu"})
    if shown:
        write_json(path / "artifacts" / "picture.json", picture(n))
    return path


def change_lines(path: Path, edit: Any) -> None:
    """Edit every record of a file of lines."""
    records = read_lines(path)
    for record in records:
        edit(record)
    write_lines(path, records)
