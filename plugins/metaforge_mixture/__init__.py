"""Several task sources as one: ``mixture``, a bank whose tasks differ in kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaforge.components import Component
from metaforge.errors import Problem
from metaforge.hookspecs import hookimpl

if TYPE_CHECKING:
    from metaforge.recipe.schema import Recipe

#: Bank tasks of a source at least, in expectation: one alone has none of its kind to recall.
_FEWEST = 2


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="mixture",
            target="metaforge_mixture.source:load",
            options="metaforge_mixture.options:MixtureOptions",
            summary="tasks of several data sets in one bank, each through its own projection "
            "to a common width",
            check="metaforge_mixture.checks:check",
            facts="metaforge_mixture.checks:facts",
            groups=True,
        )
    ]


@hookimpl
def metaforge_check_recipe(recipe: Recipe) -> Sequence[Problem]:
    if recipe.data.use != "mixture":
        return []
    from metaforge_mixture.shares import shares

    options = recipe.data.options
    parts = shares(options["sources"], options.get("weights", {}))
    expected = {name: recipe.bank.size * part for name, part in parts.items()}
    return [
        Problem(
            f"data.weights.{name}",
            f"the bank's {recipe.bank.size} tasks would hold {count:.2g} of source {name!r}, too "
            f"few to recall any of its kind for another: raise its weight or bank.size",
        )
        for name, count in expected.items()
        if count < _FEWEST
    ]
