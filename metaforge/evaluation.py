"""Phase 4: every target along every arm, one record a target, always in the same order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metaforge import losses, workers
from metaforge.arms import BankFacts, build_arms
from metaforge.conditioning import Arm, Conditioner
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.errors import NumericError
from metaforge.metatrain import WarmStart
from metaforge.optimizers import OuterOptimizer
from metaforge.recipe.schema import Recipe
from metaforge.scoring import TargetScores
from metaforge.tasks import TaskBatch, TaskSource, unpadded


@dataclass(frozen=True)
class Evaluated:
    """One target's outcome. ``record`` holds nothing that depends on the clock."""

    record: dict[str, Any]
    seconds: dict[str, float]


def recorded_steps(recipe: Recipe) -> tuple[int, ...]:
    """Steps at which targets are evaluated: always 0 (the unconditional baseline) and J."""
    steps = recipe.condition.steps
    asked = recipe.condition.record_at or (steps // 5, steps // 2)
    return tuple(sorted({0, steps, *asked}))


class Evaluator:
    """Evaluates targets of one split; ``scores`` is None for weightings without a ranking."""

    def __init__(
        self,
        recipe: Recipe,
        source: TaskSource,
        inner: InnerAlgorithm,
        start: WarmStart,
        bank: BankFacts,
        scores: TargetScores | None,
        split: str,
        workers: int = 1,
    ):
        self.workers = workers
        self.recipe, self.source, self.inner, self.split = recipe, source, inner, split
        self.bank, self.scores = bank, scores
        self.record_at = recorded_steps(recipe)
        self.conditioner = Conditioner(recipe, source, inner, start)

    def run(self, target_ids: range, done: int = 0) -> Iterator[Evaluated]:
        """The targets of ``target_ids`` from position ``done`` on, in order."""
        groups = self.source.groups(self.split, target_ids).tolist()
        # PyTorch imports its compiler with the first optimiser: once, and in no target's time.
        OuterOptimizer(self.conditioner.start.theta, self.recipe.condition.optimizer)

        def evaluate(position: int) -> Evaluated:
            try:
                return self._target(position, target_ids[position], groups[position])
            except BaseException as error:
                error.add_note(f"target {target_ids[position]}")
                raise

        return workers.ordered(evaluate, range(done, len(target_ids)), self.workers)

    def _target(self, position: int, target_id: int, group: int) -> Evaluated:
        target = unpadded(self.source.batch(self.split, [target_id]))
        kept = self.scores.kept(position) if self.scores else None
        arms = build_arms(self.recipe, self.bank, target_id, group, kept)
        curves, macro, skipped, seconds = {}, {}, {}, {}
        for arm in arms:
            start = time.perf_counter()
            points, skipped[arm.name] = self._arm(target, arm)
            seconds[arm.name] = time.perf_counter() - start
            curves[arm.name] = [point["score"] for point in points]
            if "macro" in points[-1]:
                macro[arm.name] = points[-1]["macro"]
        record: dict[str, Any] = {
            "target": position,
            "task_id": target_id,
            **self.source.describe_task(self.split, target_id),
            "unconditional": curves["conditional"][0],
            "steps": list(self.record_at),
            "curves": curves,
        }
        if macro:
            record["macro_accuracy"] = macro
        if any(skipped.values()):
            record["skipped_steps"] = skipped
        if self.scores is not None:
            record["weights"] = self.scores.statistics(position, group, self.bank.groups)
        return Evaluated(record, seconds)

    def _arm(self, target: TaskBatch, arm: Arm) -> tuple[list[dict[str, float]], int]:
        points: list[dict[str, float]] = []

        def evaluate(params: Params) -> None:
            points.append(self._score(target, params, arm))

        skipped = self.conditioner.run(target, arm, self.record_at, evaluate)
        return points, skipped

    @torch.no_grad()
    def _score(self, target: TaskBatch, params: Params, arm: Arm) -> dict[str, float]:
        assert target.query_x is not None
        outputs = self.inner.predict(params, target.without_query(), target.query_x)
        point = {"score": float(losses.scores(outputs, target))}
        if not target.is_regression:
            point["macro"] = float(losses.macro_accuracy(outputs, target))
        if not math.isfinite(point["score"]) or not bool(torch.isfinite(outputs).all()):
            raise NumericError(
                f"target {int(target.task_ids[0])} ({arm.name}): its predictions are not finite "
                "after conditioning; lower condition.optimizer.lr or inner.lr"
            )
        return point


def curve_at(records: list[dict[str, Any]], arm: str, step_index: int) -> np.ndarray:
    """[n]: an arm's scores at one recorded step, over the targets that have the arm."""
    return np.array([r["curves"][arm][step_index] for r in records if arm in r["curves"]])
