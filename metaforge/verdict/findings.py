"""What a verdict is drawn from: gains of SP and of the oracle, what was recalled, the steps.

Every gain is an improvement, so that positive is better whatever the metric: score of the
first less score of the second for accuracies, the other way round for errors. Figures are
those of ``statistics.summary``: paired over the targets that have both arms, with the 95 %
t interval of the mean. They are not adjusted for their number, but for ``best_over_last``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metaforge import statistics
from metaforge.arm_names import CONDITIONAL, SP_WITHOUT_TARGET
from metaforge.recipe.schema import Recipe

Records = list[dict[str, Any]]
Figure = dict[str, Any]

#: Controls that recall without looking at the target, the first there is taken.
SELECTION_CONTROLS = ("random_m", "uniform_bank")
#: Gains below these are not worth a change: one point of accuracy, 5 % of the error at J = 0.
WORTH_ACCURACY, WORTH_ERROR = 0.01, 0.05


@dataclass(frozen=True)
class Oracle:
    """Tasks of the target's own group recalled, over the targets that have some in the bank.

    share: SP's gain over the control as a share of the oracle's, with Fieller's interval
    (``statistics.ratio``); None where the oracle's own gain is not clearly above zero.
    """

    over_sp: Figure
    over_control: Figure | None
    over_target_only: Figure | None
    share: Figure | None


@dataclass(frozen=True)
class Recalled:
    """Share of the kept tasks that are of the target's own group, and what chance would give.

    own_group  over the targets whose group has bank tasks
    by_weight  the same of the kept weights: of many kept tasks some weigh next to nothing
    chance     the group's share of the bank
    absent             targets whose group has none, which are left out of both
    grouped            targets that have a group at all
    """

    own_group: Figure
    by_weight: Figure
    chance: Figure
    absent: int
    grouped: int


@dataclass(frozen=True)
class Weights:
    """kept: M; the kept weights' effective sample size; share of negatives among all alphas."""

    kept: int
    effective_sample_size: Figure
    negative: Figure


@dataclass(frozen=True)
class Steps:
    """SP's score against the number of steps.

    best            recorded step of the best mean
    before          the last recorded step before J
    last_rise       gain at J over ``before``
    best_over_last  gain at ``best`` over J, widened for the steps it was picked from; None
                    where J is the best
    """

    last: int
    best: int
    before: int
    last_rise: Figure
    best_over_last: Figure | None


@dataclass(frozen=True)
class Findings:
    """All that a run's records say of its gain; None marks what the run has no arm for."""

    worth: float
    regression: bool
    ranks: bool  # the weighting ranks tasks for a target
    recalls: bool  # beta1 > 0
    controls: tuple[str, ...]  # of the recipe
    over_start: Figure  # SP over J = 0
    control: str | None
    over_control: Figure | None
    control_over_start: Figure | None  # the control over J = 0
    over_target_only: Figure | None
    over_without_target: Figure | None  # SP over SP at beta2 = 0
    oracle: Oracle | None
    recalled: Recalled | None
    weights: Weights | None
    similarity: float | None  # median k(D, D') of bank tasks
    steps: Steps

    def as_json(self) -> dict[str, Any]:
        """The figures; what the recipe says already is left out."""
        left_out = ("regression", "ranks", "recalls", "controls")
        return {name: value for name, value in asdict(self).items() if name not in left_out}


def find(recipe: Recipe, records: Records, regression: bool, fits: Mapping[str, Any]) -> Findings:
    """Measure a run of J > 0 steps. ``fits``: what the kernel's fit recorded."""
    scores = _Scores(records, regression)
    weights = [record["weights"] for record in records if "weights" in record]
    ranks = bool(weights)
    control = _selection_control(scores, ranks)
    return Findings(
        worth=WORTH_ERROR * float(scores.start.mean()) if regression else WORTH_ACCURACY,
        regression=regression,
        ranks=ranks,
        recalls=recipe.condition.beta1 > 0,
        controls=recipe.evaluate.controls,
        over_start=scores.over_start(CONDITIONAL),
        control=control,
        over_control=scores.compare(CONDITIONAL, control),
        control_over_start=scores.over_start(control) if control else None,
        over_target_only=scores.compare(CONDITIONAL, "target_only"),
        over_without_target=scores.compare(CONDITIONAL, SP_WITHOUT_TARGET),
        oracle=_oracle(scores, control),
        recalled=_recalled(weights),
        weights=_weights(recipe, weights),
        similarity=fits.get("kernel", {}).get("similarity"),
        steps=_steps(records[0]["steps"], scores),
    )


class _Scores:
    """Scores of the arms over targets, and improvements between them."""

    def __init__(self, records: Records, regression: bool):
        self.records, self.regression = records, regression
        self.start = np.array([record["unconditional"] for record in records])
        self.arms = {name for record in records for name in record["curves"]}

    def final(self, arm: str) -> np.ndarray:
        """[n] after J steps; NaN where a target lacks the arm."""
        return np.array([r["curves"].get(arm, [np.nan])[-1] for r in self.records])

    def sp_curve(self) -> np.ndarray:
        """[n, steps] of SP."""
        return np.array([record["curves"][CONDITIONAL] for record in self.records])

    def gains(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Improvement of scores a over scores b, of the targets that have both."""
        both = ~(np.isnan(a) | np.isnan(b))
        first, second = (b, a) if self.regression else (a, b)
        return statistics.differences(first[both], second[both])

    def over_start(self, arm: str) -> Figure:
        """Gain of an arm over J = 0."""
        return statistics.summary(self.gains(self.final(arm), self.start))

    def compare(self, arm: str, other: str | None) -> Figure | None:
        """Gain of an arm over another after J steps; None where there is no such arm."""
        if other is None or not {arm, other} <= self.arms:
            return None
        return statistics.summary(self.gains(self.final(arm), self.final(other)))


def _selection_control(scores: _Scores, ranks: bool) -> str | None:
    """Without a ranking, SP recalls the whole bank itself."""
    names = SELECTION_CONTROLS if ranks else SELECTION_CONTROLS[:1]
    return next((name for name in names if name in scores.arms), None)


def _oracle(scores: _Scores, control: str | None) -> Oracle | None:
    over_sp = scores.compare("oracle", CONDITIONAL)
    if over_sp is None:
        return None
    return Oracle(
        over_sp,
        scores.compare("oracle", control),
        scores.compare("oracle", "target_only"),
        _share(scores, control) if control is not None else None,
    )


def _share(scores: _Scores, control: str) -> Figure | None:
    oracle, other = scores.final("oracle"), scores.final(control)
    sp = np.where(np.isnan(oracle), np.nan, scores.final(CONDITIONAL))
    own = scores.gains(oracle, other)
    return statistics.ratio(scores.gains(sp, other), own) if own.mean() > 0 else None


def _recalled(weights: Records) -> Recalled | None:
    grouped = [w for w in weights if w["own_group"] is not None]
    if not grouped:
        return None
    present = [w for w in grouped if w["own_group_bank"] > 0]
    return Recalled(
        statistics.summary([w["own_group"] for w in present]),
        statistics.summary([w["own_group_weight"] for w in present]),
        statistics.summary([w["own_group_bank"] for w in present]),
        absent=len(grouped) - len(present),
        grouped=len(grouped),
    )


def _weights(recipe: Recipe, weights: Records) -> Weights | None:
    if not weights:
        return None
    return Weights(
        min(recipe.condition.top_m, recipe.bank.size),
        statistics.summary([w["effective_sample_size"] for w in weights]),
        statistics.summary([w["alpha_negative"] for w in weights]),
    )


def _steps(recorded: list[int], scores: _Scores) -> Steps:
    curve = scores.sp_curve()
    gains = [scores.gains(at_step, curve[:, 0]).mean() for at_step in curve.T]
    best, last = int(np.argmax(gains)), len(recorded) - 1
    fall = None
    if best < last:
        fall = statistics.summary(scores.gains(curve[:, best], curve[:, -1]), comparisons=last)
    return Steps(
        last=recorded[-1],
        best=recorded[best],
        before=recorded[-2],
        last_rise=statistics.summary(scores.gains(curve[:, -1], curve[:, -2])),
        best_over_last=fall,
    )
