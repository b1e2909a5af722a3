"""Phase 3: tau(D), theta moved to one target task (paper, eq. 9 and appendix eq. 14).

From theta_hat, J steps on
``beta1 sum_i alpha_i(D) L_i(theta) + beta2 L(Alg(theta, D), D)``, where i runs over the
recalled bank tasks. A step draws B of the kept M with replacement; the bank term is the
batch mean of ``M alpha_i L_i``, an unbiased estimate whose scale does not depend on B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from metaforge import memory, seeding
from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.diagnosis import TaskLosses
from metaforge.metatrain import LearnedWeighting, WarmStart
from metaforge.optimizers import OuterOptimizer
from metaforge.outer import OuterLoop, StepLoss
from metaforge.recipe.schema import Condition, Recipe
from metaforge.tasks import TaskBatch, TaskSource, concatenate

#: Bank tasks held at once for a target: bounds memory, whatever J.
HELD_TASKS = 512
#: Runs between calls of ``memory.give_back``, which takes milliseconds.
_GIVE_BACK_EVERY = 20


class _CarriesOn(Protocol):
    def carry_on(self, flat: dict[str, Tensor]) -> None: ...


Optimizer = TypeVar("Optimizer", bound=_CarriesOn)


@dataclass(frozen=True)
class Recall:
    """What one target recalls: bank ids [M] and their weights [M], which sum to 1.

    ``learned`` replaces the weights by a learned weighting's own objective over the ids.
    """

    ids: np.ndarray
    weights: np.ndarray
    learned: LearnedWeighting | None = None

    @classmethod
    def uniform(cls, ids: np.ndarray, learned: LearnedWeighting | None = None) -> Recall:
        return cls(ids, np.full(len(ids), 1.0 / len(ids)), learned)


@dataclass(frozen=True)
class Arm:
    """One way to condition a target: the method itself, or a control of it."""

    name: str
    recall: Recall
    beta1: float
    beta2: float


@dataclass(frozen=True)
class Draws:
    """Which kept tasks each step uses: ids [J, B] and loss weights [J, B]."""

    ids: np.ndarray
    weights: np.ndarray


def draw(recall: Recall, settings: Condition, key: int) -> Draws:
    """The mini-batches of all J steps, i.i.d. with replacement from the kept tasks.

    ``sampling: uniform`` draws evenly and weights losses by M alpha;
    ``proportional`` draws by alpha and does not weight. Step j's draw depends on
    (key, j) alone, so that more steps do not change the earlier ones.
    """
    steps, batch, kept = settings.steps, settings.batch, len(recall.ids)
    uniform = seeding.uniform(key, np.arange(steps)[:, None], np.arange(batch)[None])
    if settings.sampling == "proportional":
        cumulative = np.cumsum(recall.weights)
        position = np.searchsorted(cumulative / cumulative[-1], uniform, side="right")
        position = np.minimum(position, kept - 1)
        return Draws(recall.ids[position], np.ones((steps, batch)))
    position = (uniform * kept).astype(np.int64)
    weights = (
        np.ones_like(recall.weights)
        if settings.weights_in_loss == "topm-uniform"
        else (kept * recall.weights)
    )
    return Draws(recall.ids[position], weights[position])


def target_draws(recipe: Recipe, recall: Recall, target_id: int) -> Draws:
    """A target's mini-batches: the same for all its arms that recall alike."""
    key = seeding.derive(recipe.seed, "condition/draws", target_id)
    return draw(recall, recipe.condition, key)


def target_noise(
    inner: InnerAlgorithm, seed: int, target_id: int, step: int, n_tasks: int, *stream: str
) -> Tree:
    """The noise of a target's step; ``stream`` sets apart a second call of the same step."""
    generator = seeding.generator(seed, "condition/noise", target_id, step, *stream)
    return inner.draw_noise(generator, n_tasks)


class Conditioner:
    """Conditions one target along one arm; ``evaluate`` is called at the recorded steps."""

    def __init__(self, recipe: Recipe, source: TaskSource, inner: InnerAlgorithm, start: WarmStart):
        self.recipe, self.source, self.inner, self.start = recipe, source, inner, start
        self._runs = 0

    def run(
        self,
        target: TaskBatch,
        arm: Arm,
        record_at: Sequence[int],
        evaluate: Callable[[Params], None],
    ) -> int:
        """Call ``evaluate(theta)`` at each of the ascending steps; the number of skipped steps."""
        run = _TargetRun(self, target.without_query(), arm)
        for step in record_at:
            run.loop.advance(step)
            evaluate({name: value.detach() for name, value in run.optimizer.params.items()})
        self.finished(1)
        return run.loop.skipped

    def optimizer(
        self, learned: LearnedWeighting | None, kind: Callable[..., Optimizer]
    ) -> Optimizer:
        """A ``kind`` of optimiser on a target's copy of theta, or on those of several."""
        settings = self.recipe.condition
        made = kind(
            self.start.theta,
            settings.optimizer,
            learned.parameters if learned else None,
            learned.weighting.learning_rate if learned else 0.0,
        )
        if settings.optimizer_state == "meta-train":
            made.carry_on(self.start.rule)
        return made

    def finished(self, n_runs: int) -> None:
        """Count runs, and give unused memory back now and then."""
        before, self._runs = self._runs, self._runs + n_runs
        if self._runs // _GIVE_BACK_EVERY > before // _GIVE_BACK_EVERY:
            memory.give_back()


@dataclass
class _TargetRun:
    """The state of one target on one arm: its copy of theta, its draws, its gathered tasks."""

    conditioner: Conditioner
    target: TaskBatch
    arm: Arm
    _span: range = field(default_factory=lambda: range(0))

    def __post_init__(self) -> None:
        recipe, arm = self.conditioner.recipe, self.arm
        self.inner = self.conditioner.inner
        target_id = int(self.target.task_ids[0])
        self.draws = target_draws(recipe, arm.recall, target_id)
        self._target_id = target_id
        self._own_term = self.target.support_as_query()
        self.optimizer = self.conditioner.optimizer(arm.recall.learned, OuterOptimizer)
        self.loop = OuterLoop(
            self.optimizer,
            self.inner,
            self._objective,
            on_nan=recipe.on_nan,
            allow_unused=recipe.allow_unused,
            where=f"conditioning target {target_id} ({arm.name})",
            precision=recipe.precision,
        )

    def _objective(self, step: int, params: Params, extra: Params) -> StepLoss:
        tasks, weights = self._step_tasks(step)
        parts = [self._losses(params, tasks, step)]
        per_task, n_bank = parts[0].values, len(weights)
        value = per_task.new_zeros(())
        if self.arm.beta1:
            value = value + self.arm.beta1 * self._bank_term(
                per_task[:n_bank], tasks.task_ids[:n_bank], weights, extra
            )
        if self.arm.beta2:
            if len(tasks) == n_bank:  # (D, D) did not ride along
                parts.append(self._losses(params, self._own_term, step, "target"))
            value = value + self.arm.beta2 * parts[-1].values[-1]
        return StepLoss(value, tuple(parts))

    def _losses(self, params: Params, tasks: TaskBatch, step: int, *stream: str) -> TaskLosses:
        """A step's losses of tasks; ``stream`` sets noise apart from the step's other noise."""
        seed = self.conditioner.recipe.seed
        noise = target_noise(self.inner, seed, self._target_id, step, len(tasks), *stream)
        values = self.inner.losses(params, tasks, training=True, noise=noise)
        return TaskLosses(values, tasks, noise)

    def _bank_term(self, losses: Tensor, ids: Tensor, weights: Tensor, extra: Params) -> Tensor:
        learned = self.arm.recall.learned
        if learned is not None:
            return learned.weighting.combine(extra, losses, ids, learned.state)
        return (weights * losses).mean()

    def _step_tasks(self, step: int) -> tuple[TaskBatch, Tensor]:
        """A step's bank tasks, with (D, D) as the last row where it can ride along.

        One call on B + 1 tasks costs less than two. A transductive algorithm would see
        the padding of the joined batch, so its target term is computed on its own.
        """
        if not self.arm.beta1:
            return self._own_term, self._own_term.support_mask.new_zeros(0)
        if step not in self._span:
            self._gather(step)
        return self._held[self._rows[step - self._span.start]], self._weights[step]

    def _gather(self, step: int) -> None:
        """Gather the distinct bank tasks of the coming steps once."""
        batch = self.draws.ids.shape[1]
        stop = min(len(self.draws.ids), step + max(1, HELD_TASKS // batch))
        self._span = range(step, stop)
        distinct, rows = np.unique(self.draws.ids[step:stop], return_inverse=True)
        rows = rows.reshape(-1, batch)
        held = self.conditioner.source.batch("train", distinct)
        if self.arm.beta2 and not self.inner.transductive:
            held = concatenate(held, self._own_term)
            rows = np.concatenate([rows, np.full((len(rows), 1), len(distinct))], 1)
        self._held = held
        self._rows = torch.from_numpy(rows).to(held.task_ids.device)
        self._weights = torch.from_numpy(self.draws.weights).to(held.support_mask)
