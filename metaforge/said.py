"""What a run says of itself: header, notes, what was fitted, warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from metaforge import target_batch
from metaforge.arms import BankFacts
from metaforge.contracts import InnerAlgorithm, TaskKernel, TaskWeighting
from metaforge.recipe.schema import Recipe
from metaforge.recipe.trials import Trials
from metaforge.stages import Parts

#: Learned weights up to this many are written out in the results.
_FEW = 100
#: A similarity of bank tasks' nearest below the first, or of their pairs nearer to 1 than the
#: second, says that a kernel's width does not suit the bank.
_LEAST_ALIKE, _LEAST_APART = 1e-4, 1e-6


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
        "is an untrained learner: take more meta_train.steps, a lower meta_train.optimizer.lr, or "
        "bring in more training classes"
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


def ranking_warning(fits: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line where rounding can exchange the first of the ranked bank tasks with one that is not
    kept: their alphas may each be off by ``error``, and differ by less than twice that."""
    weighting = fits.get("weighting", {})
    weights = [record["weights"] for record in records if record.get("weights")]
    relative = weighting.get("error")
    if relative is None or not weights:
        return []
    lost = sum(2 * relative * own["alpha_norm"] >= own["alpha_spread"] for own in weights)
    if not lost:
        return []
    condition = weighting.get("condition")
    told = f" (condition number {condition:.2g})" if condition else ""
    return [
        f"rounding decides which bank tasks {lost} of {len(weights)} targets recall: alphas are "
        f"known to {relative:.1g} of their length{told}, and those that are kept differ from "
        "those that are not by less; raise weighting.lambda, leave out tasks that are alike (a "
        "smaller bank), take weighting.solver: exact, or another kernel"
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
