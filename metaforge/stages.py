"""The parts of a run, made once from its recipe, and the identity of what they compute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge import environment, precision, scoring, seeding, target_batch, workers
from metaforge.arms import BankFacts, check_groups, uncertainty_control
from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm, Params, TaskKernel, TaskWeighting
from metaforge.creation import create, refuse_tasks
from metaforge.metatrain import LearnedWeighting, WarmStart
from metaforge.phi import DataPhi, LearnedPhi, refuse_unready
from metaforge.ranks import ALONE, Ranks
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskSource


@dataclass
class Parts:
    """Data, inner algorithm, kernel and weighting of one recipe, ready to use."""

    recipe: Recipe
    context: Context
    source: TaskSource
    inner: InnerAlgorithm
    theta: Params
    kernel: TaskKernel
    weighting: TaskWeighting
    #: Phase 1's result, once there is one: what a kernel of ``phi: theta_hat`` looks through.
    theta_hat: Params | None = None
    #: The processes that share the run.
    ranks: Ranks = ALONE

    @classmethod
    def build(
        cls,
        recipe: Recipe,
        context: Context,
        ranks: Ranks = ALONE,
        source: TaskSource | None = None,
    ) -> Parts:
        """Every part, the quick ones first; the data are those of ``source``, where given.

        Raises ``PluginError`` for a component that is not what its contract says,
        ``RecipeError`` where one cannot serve the data's tasks.
        """
        inner = create("inner_algorithm", recipe.inner, context)
        precision.refuse(recipe, inner)
        kernel = create("task_kernel", recipe.kernel, context)
        weighting = create("task_weighting", recipe.weighting, context)
        if weighting.learned and recipe.meta_train.tasks != "bank":
            # Its parameters belong to bank tasks, so phase 1 must visit those.
            train = recipe.meta_train.model_copy(update={"tasks": "bank"})
            recipe = recipe.model_copy(update={"meta_train": train})
        source = source or create("dataset", recipe.data, context)
        check_groups(recipe, source)
        refuse_tasks(recipe, source.shape.kind, inner=inner, kernel=kernel, weighting=weighting)
        theta = inner.init(source.shape, seeding.generator(recipe.seed, "init"))
        refuse_unready(kernel, weighting, inner, theta, source.shape)
        return cls(recipe, context, source, inner, theta, kernel, weighting, ranks=ranks)

    def with_recipe(self, recipe: Recipe) -> Parts:
        """The same data and inner algorithm under other kernel, weighting or conditioning.

        What was fitted under the same options is not fitted again.
        """
        kernel, weighting, kept = self.kernel, self.weighting, ["workers", "bank_groups"]
        if same := recipe.kernel == self.recipe.kernel:
            kept.append("gram")
        else:
            kernel = create("task_kernel", recipe.kernel, self.context)
        if recipe.weighting != self.recipe.weighting:
            weighting = create("task_weighting", recipe.weighting, self.context)
        elif same or not weighting.needs_gram:
            kept.append("weighting_state")
        refuse_tasks(recipe, self.source.shape.kind, kernel=kernel, weighting=weighting)
        refuse_unready(kernel, weighting, self.inner, self.theta, self.source.shape)
        made = replace(self, recipe=recipe, kernel=kernel, weighting=weighting)
        vars(made).update({name: vars(self)[name] for name in kept if name in vars(self)})
        return made

    def require_memory(self) -> None:
        """``DataError`` where phase 2 will not have the memory it needs: told before phase 1."""
        self.weighting.require_memory(self.recipe.bank.size, self.kernel)

    @cached_property
    def workers(self) -> int:
        return workers.count(self.recipe, self.context.device, self.ranks.size)

    @cached_property
    def batch(self) -> int:
        """Targets conditioned at once."""
        device = self.context.device
        ranks = self.ranks.size
        return target_batch.count(self.recipe, self.source, self.inner, self.theta, device, ranks)

    @cached_property
    def bank_groups(self) -> Tensor:
        return self.source.groups("train", range(self.recipe.bank.size))

    @cached_property
    def gram(self) -> scoring.KernelGram:
        """The kernel, fitted on a sample of the bank, with every bank task's signature."""
        stream = seeding.generator(self.recipe.seed, "kernel")
        phi = DataPhi()
        if self.kernel.phi == "theta_hat":
            assert self.theta_hat is not None  # refuse_unready
            phi = LearnedPhi(self.inner, self.theta_hat)
        return scoring.bank_gram(self.source, self.kernel, self.recipe.bank.size, stream, phi)

    @cached_property
    def weighting_state(self) -> Any:
        gram = self.gram if self.weighting.needs_gram else None
        return self.weighting.fit(gram, self.bank_groups, kind=self.source.shape.kind)

    @cached_property
    def learned(self) -> LearnedWeighting | None:
        """The recipe's weighting, where it is one with parameters of its own."""
        if not self.weighting.learned:
            return None
        state = self.weighting_state
        return LearnedWeighting(self.weighting, state, self.weighting.parameters(state))

    def bank_facts(self, start: WarmStart) -> BankFacts:
        learned = self.learned
        if learned is not None and start.extra:
            learned = replace(learned, parameters=start.extra)
        uncertainty = None
        if "uncertainty" in self.recipe.evaluate.controls:
            uncertainty = uncertainty_control(
                self.source, self.inner, start.theta, self.bank_groups, self.gram, self.context
            )
        groups = np.asarray(self.bank_groups.cpu())
        return BankFacts(self.recipe.bank.size, groups, learned, uncertainty)

    def score(self, split: str, target_ids: range) -> scoring.TargetScores | None:
        """Phase 2 for some targets; None where the weighting has no ranking.

        Rank 0 alone holds the matrix and solves; what is kept of each target it sends.
        """
        if not self.weighting.target_specific:
            return None
        return self.ranks.from_first(lambda: self.score_here(split, target_ids))

    def score_here(self, split: str, target_ids: Sequence[int]) -> scoring.TargetScores:
        """What ``score`` has rank 0 do: kept tasks of targets by rising id, others unheard."""
        settings, size = self.recipe.condition, self.recipe.bank.size
        scorer = scoring.Scorer(self.weighting, self.weighting_state, self.gram, size)
        return scorer.score(self.source, split, target_ids, settings.top_m, settings.negative)

    def metatrain_key(self) -> str:
        """Names phase 1's result: a digest of all that goes into it."""
        recipe = self.recipe
        used = ("data", "inner", *(("kernel", "weighting") if self.weighting.learned else ()))
        inputs = {
            "engine": environment.engine_digest(),
            "torch": torch.__version__,
            "optional": environment.optional_versions(),
            "threads": torch.get_num_threads(),
            "device": self.context.device,
            # the last bits of a sum over ranks depend on how many they are
            **({"ranks": self.ranks.size} if self.ranks.size > 1 else {}),
            "fingerprint": self.source.fingerprint,
            "implementation": self.inner.describe(),
            **_said(
                recipe, used, "seed", "precision", "on_nan", "allow_unused", "bank", "meta_train"
            ),
        }
        return _digest(inputs)

    def conditioning_key(self) -> str:
        """Names the validation targets' scores: a digest of phase 1's key and of all that phases
        2 and 3 go by."""
        said = _said(self.recipe, ("kernel", "weighting"), "condition")
        return _digest({"metatrain": self.metatrain_key(), "batch": self.batch, **said})


def _said(recipe: Recipe, components: Collection[str], *sections: str) -> dict[str, Any]:
    """What a key must hold of a recipe's sections, and of the code of its components."""
    identities = environment.components(recipe)
    return {
        "components": {k: v for k, v in identities.items() if k.partition(".")[0] in components},
        "options": recipe.model_dump(mode="json", by_alias=True, include={*components, *sections}),
    }


def _digest(inputs: Mapping[str, Any]) -> str:
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def context_for(recipe: Recipe, base: Context, ranks: Ranks = ALONE) -> Context:
    """The recipe's seed, device and precision over a base context."""
    environment.prepare(recipe.threads)
    device = ranks.device(recipe.device)
    mixed = recipe.precision == "bf16"
    return replace(base, seed=recipe.seed, device=device, dtype=recipe.dtype, mixed=mixed)


@contextmanager
def threads_put_back() -> Iterator[None]:
    """A recipe sets PyTorch's threads; a program that runs one gets its own back after it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
