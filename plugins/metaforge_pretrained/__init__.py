"""Backbones of others' making, with weights from a local file: ``timm``, ``torchvision``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_backbones() -> Sequence[Component]:
    return [
        Component(
            kind="backbone",
            name="timm",
            target="metaforge_pretrained.of_timm:Timm",
            options="metaforge_pretrained.options:PretrainedOptions",
            summary="a network of timm by its name, up to its classifier",
            check="metaforge_pretrained.needs:timm",
        ),
        Component(
            kind="backbone",
            name="torchvision",
            target="metaforge_pretrained.of_torchvision:Torchvision",
            options="metaforge_pretrained.options:PretrainedOptions",
            summary="a classifier of torchvision by its name, up to its last layer",
            check="metaforge_pretrained.needs:torchvision",
        ),
    ]
