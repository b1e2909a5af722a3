"""LEO (Rusu et al. 2019): a task's class weights, decoded from a latent space and adapted there."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import RUSU2019
from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="leo",
            target="metaforge_leo.algorithm:Leo",
            options="metaforge_leo.options:LeoOptions",
            summary="latent embedding optimisation: gradient steps on codes of class weights",
            cites=(RUSU2019,),
            tasks=("classification",),
            mixed_precision=False,
        )
    ]
