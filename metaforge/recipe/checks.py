"""Problems of a whole recipe that no single section can see, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

from metaforge.errors import MetaforgeError, RecipeError
from metaforge.recipe.document import Key
from metaforge.recipe.overrides import split_key
from metaforge.recipe.paths import unusable
from metaforge.recipe.published import unknown_keys
from metaforge.recipe.render import shown
from metaforge.recipe.schema import Optimizer, Recipe

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe

#: Sections that selection may vary: what comes after meta-training and before the targets.
SELECTABLE = ("kernel", "weighting", "condition")
#: Combinations of a grid that are validated before the run; more would take seconds.
MAX_COMBINATIONS = 500

NO_GROUPS = (
    "oracle recalls the bank tasks of a target's own group, and tasks of {!r} have no groups "
    "here: remove oracle, or have tasks with groups (of arrays: group and within)"
)

Found = Iterator[tuple[Key, str]]


def cross_section(resolved: ResolvedRecipe) -> Found:
    """(key, message) of everything wrong between sections, or with the machine."""
    recipe = resolved.recipe
    yield from _conditioning(recipe)
    yield from _evaluation(recipe)
    yield from _optimizer(recipe.meta_train.optimizer, ("meta_train", "optimizer"))
    yield from _optimizer(recipe.condition.optimizer, ("condition", "optimizer"))
    yield from _output(recipe)
    if "oracle" in recipe.evaluate.controls and has_groups(resolved) is False:
        yield ("evaluate", "controls"), NO_GROUPS.format(recipe.data.use)
    yield from unknown_keys(recipe)
    if recipe.select:
        yield from _grid(resolved)


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
    if evaluate.split == "val" and recipe.select:
        yield (
            ("evaluate", "split"),
            "selection uses the validation targets already: set test, or remove select",
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


def _output(recipe: Recipe) -> Found:
    if reason := unusable(Path(recipe.output)):
        yield ("output",), f"{reason} for the runs: make it so, or set another output"


def has_groups(resolved: ResolvedRecipe) -> bool | None:
    """Whether the data's tasks have groups; None where only the loaded data can tell."""
    (data,) = (choice for choice in resolved.chosen if choice.path == ("data",))
    return data.component.has_groups(data.options)


def _grid(resolved: ResolvedRecipe) -> Found:
    """Each key, each value, and their combinations, as if they were overrides."""
    grid = resolved.recipe.select.grid if resolved.recipe.select else {}
    sound = True
    for key, values in grid.items():
        at = ("select", "grid", key)
        if split_key(key)[0] not in SELECTABLE:
            sound = False
            yield at, f"only options of {', '.join(SELECTABLE)} can be selected"
            continue
        for value in values:
            for message in _faults(resolved, {key: value}):
                sound = False
                yield at, f"{shown(value)}: {message}"
    if sound and len(grid) > 1:
        combinations = product(*grid.values())
        for values in islice(combinations, MAX_COMBINATIONS):
            chosen = dict(zip(grid, values, strict=True))
            for message in _faults(resolved, chosen):
                yield ("select", "grid"), f"{shown(chosen)}: {message}"
                return


def _faults(resolved: ResolvedRecipe, values: dict[str, object]) -> list[str]:
    """What is wrong with the recipe once ``values`` are set in it."""
    try:
        candidate = resolved.with_values(values)
    except RecipeError as error:
        return [f"{found.path}: {found.message}" for found in error.problems if found.path]
    except MetaforgeError as error:
        return [str(error)]
    return [message for _, message in _conditioning(candidate.recipe)]
