"""Components of a run created, and found to be what their contract and their plugin say."""

from __future__ import annotations

import inspect
from typing import Any

from metaforge import registry
from metaforge.components import Component, Context
from metaforge.contracts import (
    Backbone,
    InnerAlgorithm,
    Model,
    TaskKernel,
    TaskWeighting,
    Tracker,
)
from metaforge.errors import PluginError, Problem, RecipeError
from metaforge.options import Choice
from metaforge.recipe.checks import unserved
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskKind, TaskSource

_CONTRACTS: dict[str, type] = {
    "dataset": TaskSource,
    "backbone": Backbone,
    "model": Model,
    "inner_algorithm": InnerAlgorithm,
    "task_kernel": TaskKernel,
    "task_weighting": TaskWeighting,
    "tracker": Tracker,
}
#: What a ``Component`` repeats of its target, by kind.
_REPEATED = {
    "inner_algorithm": ("tasks", "mixed_precision"),
    "task_weighting": ("target_specific", "learned"),
}


def create(kind: str, choice: Choice, context: Context) -> Any:
    """The component that a section chose, with everything that its contract has.

    Raises ``PluginError`` for one that lacks a part of it, or is not what its plugin says of
    it: before the long work starts, not where the engine first asks for what is missing.
    """
    made = registry.create_choice(kind, choice, context)
    component = registry.get(kind, choice.use)
    what = f"{kind} {component.name!r} of {registry.owner(component)}: {component.target}"
    contract = _CONTRACTS[kind]
    public = [name for name in dir(contract) if not name.startswith("_")]
    if lacking := [name for name in public if not hasattr(made, name)]:
        raise PluginError(
            f"{what} lacks {', '.join(lacking)}; expected a subclass of "
            f"{contract.__module__}.{contract.__qualname__}"
        )
    for name in public:
        _refuse_signature(what, contract, name, made)
    for name in _REPEATED.get(kind, ()):
        _refuse_other(what, component, name, getattr(made, name))
    if kind == "dataset":
        _refuse_other(what, component, "tasks", (made.shape.kind,))
    return made


def _refuse_signature(what: str, contract: type, name: str, made: Any) -> None:
    """``PluginError`` for a method that cannot be called as the contract's is."""
    expected, found = getattr(contract, name), getattr(made, name)
    if not inspect.isfunction(expected) or not callable(found):
        return
    _, *parameters = inspect.signature(expected).parameters.values()  # without self
    by_name = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    in_order = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    try:
        inspect.signature(found).bind(*in_order, **by_name)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"{what}: its {name}{inspect.signature(found)} cannot be called as the contract's, "
            f"{name}{inspect.signature(expected)}: {error}"
        ) from error


def _refuse_other(what: str, component: Component, name: str, found: Any) -> None:
    said = getattr(component, name)
    if said is not None and (set(said) != set(found) if name == "tasks" else said != found):
        raise PluginError(
            f"{what} has {name} = {found!r}, but its plugin's Component says {said!r}: make the "
            "two agree"
        )


def refuse_tasks(recipe: Recipe, kind: TaskKind, **parts: Any) -> None:
    """Raise ``RecipeError`` where a part, by its recipe's section, cannot serve such tasks."""
    for section, part in parts.items():
        if found := unserved(recipe, kind, getattr(part, "tasks", None), part.options):
            raise RecipeError([Problem(section, found)])
