"""Several task sources as one: ``mixture``, a bank whose tasks differ in kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    return list(_scarce(recipe.data.options, recipe.bank.size, 1.0, "data"))


def _scarce(options: Mapping[str, Any], size: int, part: float, key: str) -> Iterator[Problem]:
    """Sources of the mixture at ``key``, or of one within it, of which a bank of ``size`` tasks
    would hold too few. ``part`` of its tasks are the mixture's."""
    from metaforge_mixture.shares import shares

    for name, share in shares(options["sources"], options.get("weights", {})).items():
        source, count = options["sources"][name], size * part * share
        if count < _FEWEST:
            yield Problem(
                f"{key}.weights.{name}",
                f"the bank's {size} tasks would hold {count:.2g} of source {name!r}, too few to "
                "recall any of its kind for another: raise its weight or bank.size",
            )
        elif source["use"] == "mixture":
            yield from _scarce(source, size, part * share, f"{key}.sources.{name}")
