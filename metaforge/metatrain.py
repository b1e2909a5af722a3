"""Phase 1: the unconditional warm start theta_hat (paper, eq. 4).

``theta_hat = argmin mean_i L(Alg(theta, D_i^tr), D_i^val)``, by mini-batches of tasks;
the parameters kept are those of the best validation score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge import losses, seeding
from metaforge.ahead import Ahead
from metaforge.contracts import InnerAlgorithm, Params, TaskWeighting
from metaforge.diagnosis import TaskLosses, noise_of
from metaforge.errors import NumericError
from metaforge.optimizers import OuterOptimizer
from metaforge.outer import OuterLoop, StepLoss
from metaforge.ranks import ALONE, Ranks, digest
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskBatch, TaskSource, unpadded

#: Validation batches are this many tasks, to bound memory.
_EVALUATION_BATCH = 50


@dataclass
class Progress:
    """Where phase 1 stands; with the optimiser's state, all that a resumed run needs."""

    step: int = 0
    best_step: int = 0
    best_score: float | None = None
    best: dict[str, Tensor] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0
    #: How many ranks shared the steps; 0 where it was not always the same number of them.
    ranks: int = 1


@dataclass(frozen=True)
class LearnedWeighting:
    """A weighting whose parameters are trained beside theta."""

    weighting: TaskWeighting
    state: Any
    parameters: Params


@dataclass(frozen=True)
class WarmStart:
    """Where phase 1 ended: theta_hat, and what else its optimiser held at that step."""

    theta: Params
    #: The learned weighting's parameters, where there is one.
    extra: Params = field(default_factory=dict)
    #: The optimiser's own state (Adam's moments, its count of steps), as its ``state`` names it.
    rule: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, state: dict[str, Tensor], like: Params) -> WarmStart:
        """From an ``OuterOptimizer.state()``, in the order of ``like``: the rule's moments go by
        the parameters' order, which a file does not keep."""
        theta, extra = (
            {
                name.removeprefix(prefix): value
                for name, value in state.items()
                if name.startswith(prefix)
            }
            for prefix in ("params/", "extra/")
        )
        rule = {k: v for k, v in state.items() if not k.startswith(("params/", "extra/"))}
        return cls({name: theta[name] for name in like}, extra, rule)


class MetaTrainer:
    """Runs phase 1 in resumable stretches of ``validate_every`` steps.

    ``learned`` is given when the task weighting is a learned one: its ``combine`` then
    is the objective, and the tasks come from the bank.

    ``ranks`` share the tasks of a step, and those of validation, by their positions; all take
    the same steps.
    """

    def __init__(
        self,
        recipe: Recipe,
        source: TaskSource,
        inner: InnerAlgorithm,
        params: Params,
        learned: LearnedWeighting | None = None,
        ranks: Ranks = ALONE,
    ):
        self.recipe, self.source, self.inner, self.learned = recipe, source, inner, learned
        self.ranks = ranks
        self.progress = Progress(ranks=ranks.size)
        self._read = partial(self._batch, ranks)
        self._tasks: Callable[[int], TaskBatch] = self._read
        extra, rate = (
            (learned.parameters, learned.weighting.learning_rate) if learned else ({}, 0.0)
        )
        self.optimizer = OuterOptimizer(params, recipe.meta_train.optimizer, extra, rate)
        self.loop = OuterLoop(
            self.optimizer,
            inner,
            partial(self._objective, ranks),
            on_nan=recipe.on_nan,
            allow_unused=recipe.allow_unused,
            where="meta-training",
            ranks=ranks,
            whole=partial(self._objective, ALONE),
            precision=recipe.precision,
        )
        share = ranks.share(recipe.meta_train.validation_targets)
        targets = range(recipe.meta_train.validation_targets)[share.rows]
        self._validation = [
            source.batch("val", targets[start : start + _EVALUATION_BATCH])
            for start in range(0, len(targets), _EVALUATION_BATCH)
        ]

    def restore(self, progress: Progress, optimizer: dict[str, Tensor]) -> None:
        self.progress = progress
        if progress.ranks != self.ranks.size:
            progress.ranks = 0
        self.optimizer.restore(optimizer)
        self.loop.step, self.loop.skipped = progress.step, progress.skipped

    def run(
        self, checkpoint: Callable[[], None], report: Callable[[int, dict[str, float]], None]
    ) -> None:
        """Train to the end; ``progress.best`` is the optimiser's state at the best step.

        ``report(step, metrics)`` is called at every validation, ``checkpoint()`` after it.
        """
        steps = self.recipe.meta_train.steps
        if self.source.on_disk:
            with Ahead(self._read, steps) as ahead:
                self._tasks = ahead.take
                self._train(steps, checkpoint, report)
        else:
            self._train(steps, checkpoint, report)

    def _train(
        self,
        steps: int,
        checkpoint: Callable[[], None],
        report: Callable[[int, dict[str, float]], None],
    ) -> None:
        if self.progress.step == 0 and not self.progress.best:
            self._validate(report)
        while self.progress.step < steps:
            self.loop.advance(
                min(steps, self.progress.step + self.recipe.meta_train.validate_every)
            )
            self.progress.step, self.progress.skipped = self.loop.step, self.loop.skipped
            self._validate(report)
            checkpoint()

    def _objective(self, ranks: Ranks, step: int, params: Params, extra: Params) -> StepLoss:
        """This rank's part; noise is drawn for all tasks, as one process draws it."""
        ids = task_ids(self.recipe, step)
        share = ranks.share(len(ids))
        tasks = self._tasks(step) if ranks is self.ranks else self._batch(ranks, step)
        noise = self.inner.draw_noise(
            seeding.generator(self.recipe.seed, "metatrain/noise", step), len(ids)
        )
        noise = noise_of(noise, share.rows)
        per_task = self.inner.losses(params, tasks, training=True, noise=noise)
        parts = (TaskLosses(per_task, tasks, noise),)
        own = per_task[: share.count]
        if self.learned is None:
            return StepLoss(ranks.mean(own, len(ids)), parts)
        return StepLoss(self._weighted(ranks, own, ids, extra), parts)

    def _batch(self, ranks: Ranks, step: int) -> TaskBatch:
        """A rank's tasks of a step."""
        ids = task_ids(self.recipe, step)
        return self.source.batch("train", ids[ranks.share(len(ids)).rows])

    def _weighted(self, ranks: Ranks, own: Tensor, ids: np.ndarray, extra: Params) -> Tensor:
        """The learned weighting's objective of all losses, which may be any function of them.

        Every rank computes it whole, so that its value, and its gradient in the weighting's own
        parameters, count on rank 0 alone.
        """
        assert self.learned is not None
        if not ranks.first:
            extra = {name: value.detach() for name, value in extra.items()}
        losses = ranks.whole(own, len(ids))
        every = torch.as_tensor(ids, device=losses.device)
        value = self.learned.weighting.combine(extra, losses, every, self.learned.state)
        return value if ranks.first else value - value.detach()

    def _validate(self, report: Callable[[int, dict[str, float]], None]) -> None:
        params = {name: value.detach() for name, value in self.optimizer.params.items()}
        self.ranks.agree(
            lambda: {"theta": digest([*params.values(), *self.optimizer.extra.values()])},
            f"meta-training, step {self.progress.step}",
        )
        count = self.recipe.meta_train.validation_targets
        own = evaluate(self.inner, params, self._validation)[: self.ranks.share(count).count]
        score = self.ranks.whole(own, count)
        self._require_finite(score, params)
        metrics = {"validation": float(score.mean())}
        if self.loop.last is not None and bool(torch.isfinite(self.loop.last.value)):
            metrics["loss"] = float(self.loop.last.value)
        if self.loop.skipped:
            metrics["skipped"] = float(self.loop.skipped)
        self.progress.curve.append({"step": float(self.progress.step), **metrics})
        sign = -1.0 if self.source.shape.kind == "regression" else 1.0
        best = self.progress.best_score
        if best is None or sign * metrics["validation"] > sign * best:
            self.progress.best_score = metrics["validation"]
            self.progress.best_step = self.progress.step
            self.progress.best = self.optimizer.state()
        report(self.progress.step, metrics)

    def _require_finite(self, score: Tensor, params: Params) -> None:
        if bool(torch.isfinite(score).all()):
            return
        bad = int((~torch.isfinite(score)).nonzero()[0])
        place = self.inner.diagnose(params, self.source.batch("val", [bad]))
        raise NumericError(
            f"meta-training, validation at step {self.progress.step}: the score of task {bad} is "
            f"not finite{f' ({place})' if place else ''}; lower inner.lr or the outer lr"
        )


def task_ids(recipe: Recipe, step: int) -> np.ndarray:
    """[B] ids of a step's tasks: drawn from the bank, or the next of the endless stream.

    The stream begins after the bank's ids, so that its tasks are fresh ones.
    """
    batch, size = recipe.meta_train.batch, recipe.bank.size
    if recipe.meta_train.tasks == "stream":
        return size + step * batch + np.arange(batch)
    key = seeding.derive(recipe.seed, "metatrain/ids")
    return (seeding.uniform(key, step, np.arange(batch)) * size).astype(np.int64)


@torch.no_grad()
def evaluate(inner: InnerAlgorithm, params: Params, batches: list[TaskBatch]) -> Tensor:
    """[n]: the score of every task (accuracy, or mean squared error).

    A transductive algorithm would see the padding of a batch, so it gets its tasks one by one.
    """
    if inner.transductive:
        batches = [unpadded(tasks[[i]]) for tasks in batches for i in range(len(tasks))]
    found = []
    for tasks in batches:
        assert tasks.query_x is not None
        outputs = inner.predict(params, tasks.without_query(), tasks.query_x)
        found.append(losses.scores(outputs, tasks))
    return torch.cat(found)
