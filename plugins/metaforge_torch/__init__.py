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
        Component(
            kind="dataset",
            name="ready",
            target="metaforge_torch.ready:load",
            options="metaforge_torch.options:ReadyOptions",
            summary="ready tasks (x, y): learn2learn Tasksets from Python, or arrays of tasks",
            check="metaforge_torch.ready_tasks:check",
            groups=False,
            tasks=("classification",),
            facts="metaforge_torch.ready_tasks:facts",
        ),
    ]
