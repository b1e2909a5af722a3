"""The parts of a run, made once from its recipe, and the identity of what they compute."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
from metaforge.recipe.trials import Trials
from metaforge.tasks import TaskSource

#: Learned weights up to this many are written out in the results.
_FEW = 100
#: A similarity of bank tasks' nearest below the first, or of their pairs nearer to 1 than the
#: second, says that a kernel's width does not suit the bank.
_LEAST_ALIKE, _LEAST_APART = 1e-4, 1e-6


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
    def build(cls, recipe: Recipe, context: Context, ranks: Ranks = ALONE) -> Parts:
        """Every part, the quick ones first. Raises ``PluginError`` for a component that is not
        what its contract says, ``RecipeError`` where one cannot serve the data's tasks."""
        inner = create("inner_algorithm", recipe.inner, context)
        precision.refuse(recipe, inner)
        kernel = create("task_kernel", recipe.kernel, context)
        weighting = create("task_weighting", recipe.weighting, context)
        if weighting.learned and recipe.meta_train.tasks != "bank":
            # Its parameters belong to bank tasks, so phase 1 must visit those.
            train = recipe.meta_train.model_copy(update={"tasks": "bank"})
            recipe = recipe.model_copy(update={"meta_train": train})
        source = create("dataset", recipe.data, context)
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
        return self.ranks.from_first(lambda: self._score(split, target_ids))

    def _score(self, split: str, target_ids: range) -> scoring.TargetScores:
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


def header(recipe: Recipe, parts: Parts) -> dict[str, str]:
    """The facts at the top of a run (what will run, on what, how)."""
    shape, summary = parts.source.shape, parts.source.summary()
    unit = "way" if shape.kind == "classification" else "outputs"
    inner = {"use": recipe.inner.use, **parts.inner.describe()}
    return {
        "data": _words({"use": recipe.data.use, **summary}),
        "tasks": f"{shape.outputs} {unit}, {shape.shots} shot, {shape.queries} query, {shape.kind}",
        "inner": _words(inner),
        "transductive": "yes" if is_transductive(parts) else "no",
        "bank": f"N = {recipe.bank.size} tasks, meta-training on {recipe.meta_train.tasks}",
        "kernel": _words({"use": recipe.kernel.use, **parts.kernel.describe()}),
        "weighting": _words({"use": recipe.weighting.use, **recipe.weighting.options}),
        **({"select": Trials(recipe).told()} if recipe.select else {}),
        "condition": _words(_changed(recipe.condition)) or "defaults",
        "evaluate": f"{recipe.evaluate.runs} x {recipe.evaluate.targets} targets of "
        f"{recipe.evaluate.split}, controls: {', '.join(recipe.evaluate.controls) or 'none'}",
        "device": f"{parts.context.device}, {recipe.precision}, "
        f"threads {torch.get_num_threads()}, {_processes(parts)}, "
        f"{target_batch.told(recipe, parts.inner, parts.context.device, parts.batch)}, "
        f"seed {recipe.seed}",
    }


def _processes(parts: Parts) -> str:
    if parts.ranks.size == 1:
        return f"workers {parts.workers}"
    return f"{parts.ranks.size} ranks (they share the targets: workers {parts.workers} each)"


def is_transductive(parts: Parts) -> bool:
    """Whether a prediction may depend on other queries, by the learner or the signature."""
    return reads_other_queries(parts.recipe, parts.inner, parts.kernel, parts.weighting)


def reads_other_queries(
    recipe: Recipe, inner: InnerAlgorithm, kernel: TaskKernel, weighting: TaskWeighting
) -> bool:
    """``is_transductive`` of parts that are not yet put together; ``inner`` is initialised."""
    ranks = weighting.target_specific and recipe.condition.steps > 0
    return bool(inner.transductive or (kernel.reads == "all" and ranks))


def _changed(section: Any) -> dict[str, Any]:
    defaults = type(section)()
    return {name: value for name, value in section if value != getattr(defaults, name)}


def _words(facts: dict[str, Any]) -> str:
    first = str(facts.get("use", ""))
    rest = ", ".join(
        f"{key} {_plain(value)}"
        for key, value in facts.items()
        if key != "use" and value is not None
    )
    return f"{first} ({rest})" if first and rest else first or rest


def _plain(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = {k: v for k, v in value.model_dump().items() if v is not None}
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) + "}"
    return str(value)


def fit_facts(parts: Parts, facts: BankFacts) -> dict[str, Any]:
    """What the kernel's and the weighting's fits recorded, for results.json."""
    if facts.learned is not None:
        return {
            name: value.tolist()
            for name, value in facts.learned.parameters.items()
            if value.numel() <= _FEW
        }
    if not parts.weighting.target_specific:
        return {}
    report = dict(parts.weighting.report(parts.weighting_state))
    return {
        "kernel": {**parts.gram.kernel.state(), **parts.gram.similarity()},
        "weighting": {k: v if math.isfinite(v) else None for k, v in report.items()},
    }


def training_warning(trained: Mapping[str, Any]) -> list[str]:
    """A line where phase 1 left its initialisation as it was, though it took steps."""
    if not trained["steps"] or trained["best_step"]:
        return []
    return [
        "meta-training never improved on its initialisation (validation "
        f"{trained['best_score']:.4f} at step 0 is the best of {trained['steps']} steps), so J = 0 "
        "is an untrained learner: lower meta_train.optimizer.lr, or bring in more training classes"
    ]


def kernel_warning(fits: Mapping[str, Any]) -> list[str]:
    """A line where the kernel's width makes of the ranking next to nothing."""
    kernel = fits.get("kernel", {})
    if kernel.get("similarity") is None:
        return []
    if kernel["nearest"] < _LEAST_ALIKE:
        found = "finds hardly any alike", f"similarity of the nearest {kernel['nearest']:.3g}"
    elif kernel["similarity"] > 1 - _LEAST_APART:
        found = "tells hardly any apart", f"similarity {kernel['similarity']:.3g}"
    else:
        return []
    return [
        f"the kernel {found[0]} of the bank's tasks (median {found[1]}): what is recalled is close "
        "to arbitrary; take another width (kernel.bandwidth: validate chooses one), or another "
        "kernel"
    ]


def task_facts(parts: Parts) -> dict[str, Any]:
    """What makes two runs comparable: data, kind of task and its sizes."""
    return {
        "data": parts.recipe.data.use,
        "fingerprint": parts.source.fingerprint,
        "licence": parts.source.licence,
        **asdict(parts.source.shape),
    }


def notes(recipe: Recipe, parts: Parts) -> list[str]:
    """What a reader of the results must know and may not expect."""
    found = []
    if parts.recipe != recipe:
        found.append(f"{recipe.weighting.use} learns from the bank: meta_train.tasks is bank")
    if recipe.precision == "tf32" and not parts.context.device.startswith("cuda"):
        found.append(f"precision: tf32 does nothing on {parts.context.device}: it is float32 there")
    if recipe.precision == "bf16" and not parts.context.device.startswith("cuda"):
        found.append(f"precision: bf16 is for CUDA; on {parts.context.device} it is slower")
    found += _batch_notes(recipe, parts)
    if is_transductive(parts):
        found.append("transductive: a target's query inputs are read before its evaluation")
    if recipe.evaluate.split != "test":
        found.append(f"targets come from the {recipe.evaluate.split} split: not a test result")
    return found


def _batch_notes(recipe: Recipe, parts: Parts) -> list[str]:
    """What an ``evaluate.batch`` of the user's does not do."""
    asked, sharers = recipe.evaluate.batch or 1, max(parts.workers, parts.ranks.size)
    why = target_batch.obstacle(parts.inner, parts.context.device)
    if asked > 1 and why:
        return [f"evaluate.batch: {asked} is not heeded here: {why}"]
    if asked > target_batch.share(recipe, sharers):
        return [
            f"evaluate.batch: {asked} leaves some of the {sharers} processes without targets: of "
            f"{recipe.evaluate.targets * recipe.evaluate.runs}, take "
            f"{target_batch.share(recipe, sharers)} or fewer at once"
        ]
    return []
