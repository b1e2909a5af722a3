"""How far a machine's float32 is from its float64: one small run in both, figure by figure.

Both draw the same tasks, initial parameters and batches, so what differs is rounding alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaforge import scoring, stages
from metaforge.components import Context
from metaforge.pipeline import run
from metaforge.recipe import load
from metaforge.recipe.loader import ResolvedRecipe

#: Regression, which every loss and score follows smoothly, with a step of each phase.
RECIPE: dict[str, Any] = {
    "name": "numerics",
    "data": {"use": "sinusoids", "shots": 5, "queries": 10},
    "inner": {"use": "maml", "model": {"use": "mlp", "hidden": [16]}, "steps": 2, "lr": 0.01},
    "bank": {"size": 60},
    "meta_train": {"steps": 20, "batch": 4, "validate_every": 10, "validation_targets": 5},
    "condition": {"steps": 6, "batch": 4, "top_m": 10},
    "evaluate": {"targets": 8, "workers": 1, "batch": 1},
    "device": "cpu",
}
#: Of two numbers that are computed by some thousand operations: roundings that add up.
_ROUNDINGS = 1000


@dataclass(frozen=True)
class Figures:
    """What a run in one precision came to: alphas [N, T], losses of phase 1, scores of targets
    along all steps, the condition number of ``K + lambda I``."""

    alphas: np.ndarray
    losses: np.ndarray
    scores: np.ndarray
    condition: float


@dataclass(frozen=True)
class Drift:
    """The largest relative difference of a kind of figures, and what rounding explains."""

    what: str
    found: float
    expected: float
    why: str

    @property
    def explained(self) -> bool:
        return self.found <= self.expected


def measure() -> list[Drift]:
    """Run in float32 and in float64; some seconds."""
    return drifts(figures("float32"), figures("float64"))


def drifts(single: Figures, double: Figures) -> list[Drift]:
    """Differences between two precisions; of alphas target by target, in shares of their length."""
    rounding = float(np.finfo(np.float32).eps)
    lengths = np.linalg.norm(double.alphas, axis=0)
    alphas = np.linalg.norm(single.alphas - double.alphas, axis=0) / lengths
    many = f"{_ROUNDINGS} roundings of float32"
    return [
        Drift(
            "alphas",
            float(alphas.max()),
            double.condition * rounding,
            f"condition number {double.condition:.3g} times a rounding of the signatures",
        ),
        Drift("losses", _relative(single.losses, double.losses), _ROUNDINGS * rounding, many),
        Drift("scores", _relative(single.scores, double.scores), _ROUNDINGS * rounding, many),
    ]


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float((np.abs(found - expected) / np.abs(expected)).max())


def figures(precision: str) -> Figures:
    """Of a run in this precision, of which nothing is left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resolved = load(RECIPE, {"precision": precision, "output": str(folder)})
        run_dir = Path(run(resolved, quiet=True)["run_dir"])
        targets = _lines(run_dir / "targets.jsonl")
        metrics = _lines(run_dir / "metrics.jsonl")
        alphas, condition = _alphas(resolved, folder, len(targets))
    return Figures(
        alphas,
        np.array(
            [point[key] for point in metrics for key in ("loss", "validation") if key in point]
        ),
        np.array([target["curves"]["conditional"] for target in targets]),
        condition,
    )


def _alphas(resolved: ResolvedRecipe, folder: Path, targets: int) -> tuple[np.ndarray, float]:
    recipe = resolved.recipe
    parts = stages.Parts.build(recipe, stages.context_for(recipe, Context(cache_dir=folder)))
    state, size = parts.weighting_state, recipe.bank.size
    scorer = scoring.Scorer(parts.weighting, state, parts.gram, size)
    batch = parts.source.batch(recipe.evaluate.split, range(targets), parts.gram.phi.view)
    return scorer.alphas(batch).numpy(), float(parts.weighting.report(state)["condition"])


def _lines(path: Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
