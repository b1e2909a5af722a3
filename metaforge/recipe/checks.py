"""Problems of a whole recipe that no single section can see, each with what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from metaforge.options import Options
from metaforge.recipe import machine
from metaforge.recipe.component_checks import data_facts
from metaforge.recipe.document import Key
from metaforge.recipe.published import unknown_keys
from metaforge.recipe.schema import Optimizer, Recipe

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe

NO_GROUPS = (
    "oracle recalls the bank tasks of a target's own group, and tasks of {!r} have no groups "
    "here: remove oracle, or have tasks with groups (of arrays: group and within)"
)

ONE_PRECISION = (
    "bf16 has networks' forward passes in bfloat16, and {} computes in one precision: set "
    "float32, tf32 or float64, or take another inner algorithm (ls, r2d2, maml)"
)

Found = Iterator[tuple[Key, str]]


def cross_section(resolved: ResolvedRecipe) -> Found:
    """(key, message) of everything wrong between sections, or with the machine; what is wrong
    with the values that selection tries is found by ``grid.problems``."""
    recipe = resolved.recipe
    yield from setting(resolved)
    if recipe.evaluate.split == "val" and recipe.select:
        yield (
            ("evaluate", "split"),
            "selection uses the validation targets already: set test, or remove select",
        )
    if reason := machine.unusable(Path(recipe.output)):
        yield ("output",), f"{reason} for the runs: make it so, or set another output"
    if found := machine.device_problem(recipe.device):
        yield ("device",), found
    yield from unknown_keys(recipe)
    yield from _inputs(resolved)


def setting(resolved: ResolvedRecipe) -> Found:
    """What is wrong with the values of one setting of the options, chosen ones included."""
    recipe = resolved.recipe
    yield from _conditioning(recipe)
    yield from _evaluation(recipe)
    yield from _optimizer(recipe.meta_train.optimizer, ("meta_train", "optimizer"))
    yield from _optimizer(recipe.condition.optimizer, ("condition", "optimizer"))
    if "oracle" in recipe.evaluate.controls and has_groups(resolved) is False:
        yield ("evaluate", "controls"), NO_GROUPS.format(recipe.data.use)
    inner = next(choice.component for choice in resolved.chosen if choice.path == ("inner",))
    if recipe.precision == "bf16" and inner.mixed_precision is False:
        yield ("precision",), ONE_PRECISION.format(recipe.inner.use)
    yield from _tasks(resolved)
    for choice in resolved.chosen:
        if message := choice.options.unfit_bank(recipe.bank.size):
            yield choice.path, message


def _conditioning(recipe: Recipe) -> Found:
    condition = recipe.condition
    if condition.sampling == "proportional":
        if condition.negative == "keep":
            yield (
                ("condition", "sampling"),
                "proportional draws tasks by weight, which negative weights do not allow: "
                "set condition.negative: clip, or sampling: uniform",
            )
        if condition.weights_in_loss == "topm-uniform":
            yield (
                ("condition", "sampling"),
                "proportional draws tasks by alpha, topm-uniform says not to use alpha "
                "beyond the choice of tasks: change one of the two",
            )
    if condition.steps and condition.beta1 == condition.beta2 == 0:
        yield ("condition",), "beta1 and beta2 are both 0: there is nothing to minimise"
    carried, rule = recipe.meta_train.optimizer.use, condition.optimizer.use
    if condition.optimizer_state == "meta-train" and carried != rule:
        yield (
            ("condition", "optimizer_state"),
            f"the moments of {carried} are none of {rule}: set condition.optimizer.use: {carried}, "
            "or optimizer_state: fresh",
        )
    late = [step for step in condition.record_at or () if step > condition.steps]
    if late:
        yield (
            ("condition", "record_at"),
            f"step {late[0]} comes after the last, condition.steps is {condition.steps}: "
            "drop it or raise condition.steps",
        )


def _evaluation(recipe: Recipe) -> Found:
    evaluate = recipe.evaluate
    if evaluate.split == "train":
        yield (
            ("evaluate", "split"),
            "targets from the training split are no test: theta and the bank have seen "
            "their classes; set test, or val while you develop",
        )
    if "target_only" in evaluate.controls and recipe.condition.beta2 == 0:
        yield (
            ("evaluate", "controls"),
            "target_only needs a target term, and condition.beta2 is 0: raise beta2 or "
            "remove the control",
        )
    if (evaluate.workers or 1) > 1 and recipe.threads != 1:
        yield (
            ("evaluate", "workers"),
            "workers compute on one thread each: set threads: 1, or workers: 1",
        )
    twice = [name for name in set(evaluate.controls) if evaluate.controls.count(name) > 1]
    if twice:
        yield ("evaluate", "controls"), f"{sorted(twice)[0]} is listed twice"


def _optimizer(optimizer: Optimizer, at: Key) -> Found:
    if optimizer.use == "adam" and optimizer.momentum:
        yield (*at, "momentum"), "only sgd has it: remove it, or set use: sgd"
    if optimizer.use == "sgd" and optimizer.eps_convention != "torch":
        yield (*at, "eps_convention"), "only adam has it: remove it, or set use: adam"


def has_groups(resolved: ResolvedRecipe) -> bool | None:
    """Whether the data's tasks have groups; None where only the loaded data can tell."""
    (data,) = (choice for choice in resolved.chosen if choice.path == ("data",))
    return data.component.has_groups(data.options)


def _tasks(resolved: ResolvedRecipe) -> Found:
    """Components that cannot serve the data's kind of tasks, where the data set says it."""
    data = next(choice.component for choice in resolved.chosen if choice.path == ("data",))
    if data.tasks is None or len(data.tasks) != 1:
        return
    (kind,) = data.tasks
    for choice in resolved.chosen:
        component = choice.component
        served = component.tasks if component.kind == "inner_algorithm" else None
        if message := unserved(resolved.recipe, kind, served, choice.options):
            yield choice.path, message


def _inputs(resolved: ResolvedRecipe) -> Found:
    """The inner algorithm, or its model, that cannot serve samples of the data's shape. The data
    are asked for it only where the answer matters."""
    asking = [
        choice
        for choice in resolved.chosen
        if choice.path[0] == "inner"
        and type(choice.options).unfit_inputs is not Options.unfit_inputs
    ]
    if not asking:
        return
    data = next(choice for choice in resolved.chosen if choice.path == ("data",))
    facts = data_facts(data, resolved.context())
    if facts is None or facts.shape is None:
        return
    for choice in asking:
        if message := choice.options.unfit_inputs(facts.shape):
            yield choice.path, message


def unserved(recipe: Recipe, kind: str, served: Collection[str] | None, options: Options) -> str:
    """Why a component cannot serve the data's kind of tasks, or nothing. ``served`` are the
    kinds that an inner algorithm serves, None for those of another component."""
    if served is not None and kind not in served:
        return (
            f"{recipe.inner.use} serves {' and '.join(sorted(served))} alone, and the tasks of "
            f"{recipe.data.use!r} are {kind}: choose another algorithm, or other data"
        )
    return options.unfit(kind)
