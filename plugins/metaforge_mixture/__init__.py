"""Several task sources as one: ``mixture``, a bank whose tasks differ in kind."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


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
