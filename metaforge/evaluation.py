"""Phase 4: every target along every arm, one record a target, always in the same order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metaforge import losses, stacked
from metaforge.arms import BankFacts, build_arms
from metaforge.conditioning import Arm, Conditioner
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.errors import NumericError
from metaforge.metatrain import WarmStart
from metaforge.optimizers import OuterOptimizer
from metaforge.ranks import ALONE, Ranks
from metaforge.recipe.schema import Recipe
from metaforge.scoring import TargetScores
from metaforge.tasks import TaskBatch, TaskSource, concatenate, unpadded
from metaforge.together import NotTogether, condition


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


@dataclass(frozen=True)
class _Outcome:
    """One target along one arm: its points at the recorded steps."""

    points: list[dict[str, float]]
    skipped: int
    seconds: float


class Evaluator:
    """Evaluates targets of one split; ``scores`` is None for weightings without a ranking.

    ``batch`` targets are conditioned at once (``metaforge.together``), at 1 one after another.
    """

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
        batch: int = 1,
        ranks: Ranks = ALONE,
    ):
        self.workers, self.batch, self.ranks = workers, batch, ranks
        self.recipe, self.source, self.inner, self.split = recipe, source, inner, split
        self.bank, self.scores = bank, scores
        self.record_at = recorded_steps(recipe)
        self.conditioner = Conditioner(recipe, source, inner, start)

    def run(self, target_ids: range, done: int = 0) -> Iterator[Evaluated]:
        """The targets of ``target_ids`` from position ``done`` on, in order; where ranks share
        them, all on rank 0, and none on the others."""
        groups = self.source.groups(self.split, target_ids).tolist()
        # PyTorch imports its compiler with the first optimiser: once, and in no target's time.
        OuterOptimizer(self.conditioner.start.theta, self.recipe.condition.optimizer)
        positions = range(done, len(target_ids))
        blocks = [positions[i : i + self.batch] for i in range(0, len(positions), self.batch)]

        def evaluate(number: int) -> list[Evaluated]:
            block = blocks[number]
            return self._block(block, [target_ids[p] for p in block], [groups[p] for p in block])

        found = self.ranks.ordered(evaluate, range(len(blocks)), self.workers)
        return (evaluated for block in found for evaluated in block)

    def _block(self, block: range, ids: list[int], groups: list[int]) -> list[Evaluated]:
        """The targets at the positions of ``block``, together if that goes well."""
        if len(ids) > 1:
            try:
                return self._together(block, ids, groups)
            except NotTogether:
                pass
            except BaseException as error:
                error.add_note(f"targets {ids[0]} to {ids[-1]} at once (evaluate.batch)")
                raise
        return [self._alone(*one) for one in zip(block, ids, groups, strict=True)]

    def _alone(self, position: int, target_id: int, group: int) -> Evaluated:
        try:
            target = unpadded(self.source.batch(self.split, [target_id]))
            arms = self._arms(position, target_id, group)
            outcomes = {arm.name: self._arm(target, arm) for arm in arms}
            return self._evaluated(position, target_id, group, outcomes)
        except BaseException as error:
            error.add_note(f"target {target_id}")
            raise

    def _together(self, block: range, ids: list[int], groups: list[int]) -> list[Evaluated]:
        """Arm by arm, each for those targets that have it."""
        each = list(zip(block, ids, groups, strict=True))
        given = self.source.batch(self.split, ids)
        # Padding last, as noise goes by the row.
        targets = concatenate(*(unpadded(given[[t]]) for t in range(len(ids))))
        arms = [{arm.name: arm for arm in self._arms(*one)} for one in each]
        outcomes: list[dict[str, _Outcome]] = [{} for _ in ids]
        for name in dict.fromkeys(name for own in arms for name in own):
            mine = [t for t, own in enumerate(arms) if name in own]
            found = self._arm_together(targets[mine], [arms[t][name] for t in mine])
            for t, outcome in zip(mine, found, strict=True):
                outcomes[t][name] = outcome
        return [self._evaluated(*one, own) for one, own in zip(each, outcomes, strict=True)]

    def _arms(self, position: int, target_id: int, group: int) -> list[Arm]:
        kept = self.scores.kept(position) if self.scores else None
        return build_arms(self.recipe, self.bank, target_id, group, kept)

    def _evaluated(
        self, position: int, target_id: int, group: int, outcomes: dict[str, _Outcome]
    ) -> Evaluated:
        """A target's record, its arms in the order in which ``build_arms`` gives them."""
        curves = {arm: [point["score"] for point in o.points] for arm, o in outcomes.items()}
        record: dict[str, Any] = {
            "target": position,
            "task_id": target_id,
            **self.source.describe_task(self.split, target_id),
            "unconditional": curves["conditional"][0],
            "steps": list(self.record_at),
            "curves": curves,
        }
        last = {arm: outcome.points[-1] for arm, outcome in outcomes.items()}
        if macro := {arm: point["macro"] for arm, point in last.items() if "macro" in point}:
            record["macro_accuracy"] = macro
        skipped = {arm: outcome.skipped for arm, outcome in outcomes.items()}
        if any(skipped.values()):
            record["skipped_steps"] = skipped
        if self.scores is not None:
            record["weights"] = self.scores.statistics(position, group, self.bank.groups)
        return Evaluated(record, {arm: outcome.seconds for arm, outcome in outcomes.items()})

    def _arm(self, target: TaskBatch, arm: Arm) -> _Outcome:
        points: list[dict[str, float]] = []

        def evaluate(params: Params) -> None:
            points.append(self._score(target, params, arm))

        start = time.perf_counter()
        skipped = self.conditioner.run(target, arm, self.record_at, evaluate)
        return _Outcome(points, skipped, time.perf_counter() - start)

    def _arm_together(self, targets: TaskBatch, arms: list[Arm]) -> list[_Outcome]:
        """Seconds are those of all targets, divided by their number."""
        points: list[list[dict[str, float]]] = []

        def evaluate(params: Params) -> None:
            points.append(self._scores(targets, params))

        start = time.perf_counter()
        skipped = condition(self.conditioner, targets, arms, self.record_at, evaluate)
        seconds = (time.perf_counter() - start) / len(arms)
        own = zip(zip(*points, strict=True), skipped, strict=True)
        return [_Outcome(list(curve), count, seconds) for curve, count in own]

    @torch.no_grad()
    def _scores(self, targets: TaskBatch, params: Params) -> list[dict[str, float]]:
        """A point for each of T targets, each by its own copy of theta."""
        outputs = stacked.predictions(self.inner, params, targets)
        unseen = targets.query_mask[..., None] == 0
        points = {"score": losses.scores(outputs, targets)}
        if not targets.is_regression:
            points["macro"] = losses.macro_accuracy(outputs, targets)
        if not bool(torch.isfinite(outputs).logical_or(unseen).all()):
            raise NotTogether
        columns = {name: values.tolist() for name, values in points.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

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
