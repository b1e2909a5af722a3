"""MAML (Finn et al. 2017), by hand-batched formulas, by functional calls or by learn2learn."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import ARNOLD2020, FINN2017
from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="maml",
            target="metaforge_maml.algorithm:Maml",
            options="metaforge_maml.options:MamlOptions",
            summary="gradient steps from a learned initialisation, first or second order",
            cites=(FINN2017, ARNOLD2020),
            check="metaforge_maml.options:missing",
            tasks=("classification", "regression"),
            mixed_precision=True,
        )
    ]
