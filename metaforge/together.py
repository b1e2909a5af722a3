"""Phase 3 for several targets at once: a copy of theta for each, one step for all.

What ``metaforge.conditioning`` does target after target, for a device that one small target
leaves idle. A target's draws, noise, weights, moments, clipping and skipped steps are its own,
so its results are those it has alone, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from metaforge import stacked
from metaforge.conditioning import HELD_TASKS, Arm, Conditioner, target_draws, target_noise
from metaforge.contracts import Params, Tree
from metaforge.precision import steps
from metaforge.stacked import StackedOptimizer
from metaforge.tasks import TaskBatch, TaskShape, concatenate

#: Bytes of bank tasks held at once for all targets: more steps' than one are gathered together
#: as far as this goes.
_HELD_BYTES = 1 << 30


class NotTogether(Exception):
    """Something is amiss with one of the targets. One by one, it is told what, and of which."""


def condition(
    conditioner: Conditioner,
    targets: TaskBatch,
    arms: Sequence[Arm],
    record_at: Sequence[int],
    evaluate: Callable[[Params], None],
) -> list[int]:
    """Condition T targets, each along its own arm; the number of skipped steps of each.

    ``arms`` differ in what they recall alone. ``evaluate`` is called at each of the ascending
    steps with all copies of theta, ``{name: [T, *shape]}``. Raises ``NotTogether`` where one by
    one would stop.
    """
    run = _Run(conditioner, targets.without_query(), arms)
    for step in record_at:
        run.advance(step)
        evaluate({name: value.detach() for name, value in run.optimizer.params.items()})
    conditioner.finished(len(arms))
    return run.skipped.tolist()


def task_bytes(shape: TaskShape, precision: str) -> int:
    """What a task's inputs take in memory."""
    per_class = shape.outputs if shape.kind == "classification" else 1
    rows = per_class * (shape.shots + shape.queries)
    item = torch.empty((), dtype=getattr(torch, precision)).element_size()
    return rows * torch.Size(shape.input_shape).numel() * item


class _Run:
    """The state of T targets: copies of theta, draws, gathered tasks."""

    def __init__(self, conditioner: Conditioner, targets: TaskBatch, arms: Sequence[Arm]):
        self.conditioner, self.arms, self.arm = conditioner, arms, arms[0]
        self.inner, self.recipe = conditioner.inner, conditioner.recipe
        self.target_ids = targets.task_ids.tolist()
        pairs = zip(arms, self.target_ids, strict=True)
        draws = [target_draws(self.recipe, arm.recall, target_id) for arm, target_id in pairs]
        self._ids = np.stack([each.ids for each in draws], 1)  # [J, T, B]
        self._draw_weights = np.stack([each.weights for each in draws], 1)
        self._own_term = targets.support_as_query()
        copies = partial(StackedOptimizer, len(arms))
        self.optimizer = conditioner.optimizer(self.arm.recall.learned, copies)
        self.skipped = torch.zeros_like(self.optimizer.steps)
        self.step = 0
        self._span = range(0)

    def advance(self, until: int) -> None:
        """Run up to (not including) step ``until``; nothing is read from the device before."""
        with steps(self.recipe.precision, self.skipped.device):
            for step in range(self.step, until):
                self._one(step)
        self.step = max(self.step, until)
        if self.recipe.on_nan == "stop" and bool(self.skipped.any()):
            raise NotTogether

    def _one(self, step: int) -> None:
        values = self._objective(step, self.optimizer.params, self.optimizer.extra)
        gradients = self._gradients(values, first=step == 0)
        norms = [gradient.reshape(len(values), -1).norm(dim=1) for gradient in gradients]
        finite = torch.isfinite(torch.stack([values.detach(), *norms]).sum(0))
        self.skipped += ~finite
        self.optimizer.step(gradients, finite)

    def _gradients(self, values: Tensor, *, first: bool) -> list[Tensor]:
        """Each copy's own: no target's objective depends on another's copy."""
        theta = list(self.optimizer.params.values())
        leaves = [*theta, *self.optimizer.extra.values()]
        if not values.requires_grad:
            raise NotTogether
        found = torch.autograd.grad(values.sum(), leaves, allow_unused=True)
        if first:
            self._check(found[: len(theta)])
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, found, strict=True)
        ]

    def _check(self, found: Sequence[Tensor | None]) -> None:
        """What ``OuterLoop`` asks after the first step, of every copy."""
        n_targets = len(self.arms)
        reached = [g.reshape(n_targets, -1).any(1) for g in found if g is not None]
        unused = len(reached) < len(found) and not self.recipe.allow_unused
        if unused or not reached or not bool(torch.stack(reached).any(0).all()):
            raise NotTogether

    def _objective(self, step: int, params: Params, extra: Params) -> Tensor:
        """[T]"""
        tasks, weights = self._step_tasks(step)
        losses = stacked.losses(self.inner, params, tasks, self._noise(step, weights.shape[1]))
        n_bank = weights.shape[1]
        value = losses.new_zeros(len(losses))
        if self.arm.beta1:
            ids = tasks.task_ids.view(len(losses), -1)[:, :n_bank]
            value = value + self.arm.beta1 * self._bank_terms(
                losses[:, :n_bank], ids, weights, extra
            )
        if self.arm.beta2:
            value = value + self.arm.beta2 * losses[:, -1]
        penalties = stacked.penalties(self.inner, params)
        return value if penalties is None else value + penalties

    def _noise(self, step: int, n_bank: int) -> Tree:
        n_tasks, seed = n_bank + bool(self.arm.beta2 or not n_bank), self.recipe.seed
        each = (target_noise(self.inner, seed, i, step, n_tasks) for i in self.target_ids)
        first = next(each)
        return None if first is None else stacked.stack([first, *each])

    def _bank_terms(self, losses: Tensor, ids: Tensor, weights: Tensor, extra: Params) -> Tensor:
        learned = self.arm.recall.learned
        if learned is None:
            return (weights * losses).mean(1)
        combine, state = learned.weighting.combine, learned.state
        own = ({name: value[t] for name, value in extra.items()} for t in range(len(losses)))
        rows = zip(own, losses, ids, strict=True)
        return torch.stack([combine(mine, row, tasks, state) for mine, row, tasks in rows])

    def _step_tasks(self, step: int) -> tuple[TaskBatch, Tensor]:
        """A step's tasks, target by target, (D, D) last of each; bank weights [T, B]."""
        if not self.arm.beta1:
            return self._own_term, self._own_term.support_mask.new_zeros(len(self.arms), 0)
        if step not in self._span:
            self._gather(step)
        at = step - self._span.start
        return self._held[self._rows[at].flatten()], self._weights[at]

    def _gather(self, step: int) -> None:
        """Gather the distinct bank tasks of the coming steps of all targets once."""
        n_steps, n_targets, batch = self._ids.shape
        shape = self.conditioner.source.shape
        each = n_targets * batch * task_bytes(shape, "float64")
        ahead = min(HELD_TASKS // batch, _HELD_BYTES // max(1, each))
        stop = min(n_steps, step + max(1, ahead))
        self._span = range(step, stop)
        ids = self._ids[step:stop]
        distinct, rows = np.unique(ids, return_inverse=True)
        rows = rows.reshape(ids.shape)
        held = self.conditioner.source.batch("train", distinct)
        if self.arm.beta2:
            held = concatenate(held, self._own_term)
            own = len(distinct) + np.arange(n_targets)[:, None]
            own = np.broadcast_to(own, (*ids.shape[:2], 1))
            rows = np.concatenate([rows, own], 2)
        self._held = held
        self._rows = torch.from_numpy(rows).to(held.task_ids.device)
        weights = torch.from_numpy(self._draw_weights[step:stop])
        self._weights = weights.to(held.support_mask)
