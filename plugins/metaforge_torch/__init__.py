"""Data sets of Python: ``torch``, of samples (x, y), and ``ready``, of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="torch",
            target="metaforge_torch.source:load",
            options="metaforge_torch.options:TorchOptions",
            summary="a torch Dataset of (x, y) from Python, by create or run(..., data=...)",
            groups="metaforge_torch.options:has_groups",
            tasks=("classification",),
        ),
    ]
