"""The arms of a run: SP itself and the controls that make its gain believable.

Every arm spends the same steps on the same frozen targets. Arms:

=================  ====================================================================
conditional        the recipe's own weighting, top M, beta1 and beta2
uniform_bank       uniform over the whole bank: does more training alone help?
random_m           M tasks drawn at random: does a small set alone help?
topm_equal         the top M with equal weights: does the ranking or the weight matter?
target_only        beta1 = 0: does the target term alone do it?
uncertainty        learned multi-task weights (Kendall et al. 2018) over the bank
oracle             bank tasks of the target's own group: what perfect selection would give
=================  ====================================================================

All but ``target_only`` keep the run's beta2; with ``without_target_term`` the arm
``sp_without_target`` and the first three controls run at beta2 = 0 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metaforge import registry, seeding
from metaforge.arm_names import SP_WITHOUT_TARGET, WITHOUT_TARGET
from metaforge.components import Context
from metaforge.conditioning import Arm, Recall
from metaforge.contracts import GramOperator, InnerAlgorithm, Params
from metaforge.errors import DataError
from metaforge.metatrain import LearnedWeighting
from metaforge.recipe.checks import NO_GROUPS
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskSource

_BANK_CONTROLS = ("uniform_bank", "random_m", "topm_equal")
#: Bank tasks whose losses at theta_hat set the uncertainty control's log-variances.
_UNCERTAINTY_SAMPLE = 1000


@dataclass(frozen=True)
class BankFacts:
    """What the arms need to know of the bank."""

    size: int
    groups: np.ndarray  # [N], -1 for none
    #: Set when the recipe's own weighting is learned.
    learned: LearnedWeighting | None = None
    #: Set when ``uncertainty`` is among the controls.
    uncertainty: LearnedWeighting | None = None


def build_arms(
    recipe: Recipe,
    bank: BankFacts,
    target_id: int,
    target_group: int,
    kept: tuple[np.ndarray, np.ndarray] | None,
) -> list[Arm]:
    """Every arm of one target. ``kept`` is its top M and their weights, None where the
    weighting is not target-specific (then SP uses the whole bank and M is ignored)."""
    settings, every = recipe.condition, np.arange(bank.size)
    arms = [conditional(recipe, bank, kept)]
    own = arms[0].recall
    top = Recall.uniform(own.ids) if kept is not None else None
    random = np.sort(_random_subset(recipe, bank.size, target_id))
    same_group = np.flatnonzero(bank.groups == target_group) if target_group >= 0 else every[:0]
    recalls = {
        "uniform_bank": Recall.uniform(every),
        "random_m": Recall.uniform(random),
        "topm_equal": top,
        "target_only": own,
        "uncertainty": Recall.uniform(every, bank.uncertainty),
        "oracle": Recall.uniform(same_group) if len(same_group) else None,
    }
    for name in recipe.evaluate.controls:
        recall = recalls[name]
        if recall is not None:
            beta1 = 0.0 if name == "target_only" else settings.beta1
            arms.append(Arm(name, recall, beta1, settings.beta2))
    if recipe.evaluate.without_target_term and settings.beta2:
        arms.append(Arm(SP_WITHOUT_TARGET, own, settings.beta1, 0.0))
        arms += [
            Arm(arm.name + WITHOUT_TARGET, arm.recall, arm.beta1, 0.0)
            for arm in arms
            if arm.name in _BANK_CONTROLS
        ]
    return arms


def conditional(recipe: Recipe, bank: BankFacts, kept: tuple[np.ndarray, np.ndarray] | None) -> Arm:
    """SP itself; ``kept`` as ``build_arms`` takes it."""
    settings = recipe.condition
    own = Recall(*kept) if kept is not None else Recall.uniform(np.arange(bank.size), bank.learned)
    return Arm("conditional", own, settings.beta1, settings.beta2)


def _random_subset(recipe: Recipe, size: int, target_id: int) -> np.ndarray:
    """M bank ids without replacement, the target's own draw."""
    key = seeding.derive(recipe.seed, "control/random_m", target_id)
    keep = min(recipe.condition.top_m, size)
    return np.argpartition(seeding.bits(key, np.arange(size)), keep - 1)[:keep]


def uncertainty_control(
    source: TaskSource,
    inner: InnerAlgorithm,
    theta_hat: Params,
    bank_groups: Tensor,
    gram: GramOperator,
    context: Context,
) -> LearnedWeighting:
    """The learned weighting of the ``uncertainty`` control, started at its optimum.

    Its log-variances are first trained alone, by their own objective, on the losses of
    up to 1000 bank tasks at theta_hat: where phase 1 with this weighting would have
    brought them. Every target then carries them on from there, beside theta.
    """
    weighting = registry.create("task_weighting", "uncertainty", context=context)
    state = weighting.fit(gram, bank_groups, kind=source.shape.kind)
    parameters = {
        name: value.detach().clone().requires_grad_()
        for name, value in weighting.parameters(state).items()
    }
    count = min(_UNCERTAINTY_SAMPLE, len(bank_groups))
    with torch.no_grad():
        losses = torch.cat(
            [
                inner.losses(theta_hat, source.batch("train", range(start, min(start + 50, count))))
                for start in range(0, count, 50)
            ]
        )
    ids = torch.arange(count, device=losses.device)
    rule = torch.optim.Adam(parameters.values(), lr=0.05)
    for _ in range(300):
        value = weighting.combine(parameters, losses, ids, state)
        for leaf, gradient in zip(
            parameters.values(), torch.autograd.grad(value, list(parameters.values())), strict=True
        ):
            leaf.grad = gradient
        rule.step()
    return LearnedWeighting(weighting, state, {k: v.detach() for k, v in parameters.items()})


def check_groups(recipe: Recipe, source: TaskSource) -> None:
    """The oracle needs groups; say so before the work starts, of data that show it only now."""
    if "oracle" in recipe.evaluate.controls and not source.group_names:
        raise DataError(f"evaluate.controls: {NO_GROUPS.format(recipe.data.use)}")
