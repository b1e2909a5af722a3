"""Own data in one line: ``arrays``, from an npz file or from arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="arrays",
            target="metaforge_arrays.source:load",
            options="metaforge_arrays.options:ArraysOptions",
            summary="own features or images with labels, from an npz file or from memory",
            check="metaforge_arrays.layout:check",
            groups="metaforge_arrays.layout:has_groups",
            tasks=("classification",),
            facts="metaforge_arrays.layout:facts",
        )
    ]
