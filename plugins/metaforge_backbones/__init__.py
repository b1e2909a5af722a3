"""Backbones without further packages: ``pixels``, and ``conv4`` and ``resnet12`` as
``metaforge pretrain`` trains them."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import LEE2019, VINYALS2016
from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_backbones() -> Sequence[Component]:
    return [
        Component(
            kind="backbone",
            name="pixels",
            target="metaforge_backbones.pixels:Pixels",
            options="metaforge_backbones.options:PixelsOptions",
            summary="the image itself, brought to a size and flattened: what features have to beat",
        ),
        Component(
            kind="backbone",
            name="conv4",
            target="metaforge_backbones.networks:Conv4",
            options="metaforge_backbones.options:Conv4Options",
            summary="four blocks of convolution and pooling, trained by metaforge pretrain",
            check="metaforge.weights:missing_weights",
            cites=(VINYALS2016,),
        ),
        Component(
            kind="backbone",
            name="resnet12",
            target="metaforge_backbones.networks:ResNet12",
            options="metaforge_backbones.options:ResNet12Options",
            summary="residual blocks of three convolutions, trained by metaforge pretrain",
            check="metaforge.weights:missing_weights",
            cites=(LEE2019,),
        ),
    ]
