"""Networks for MAML-like inner algorithms: ``linear``, ``mlp``, ``conv4``, ``resnet12``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import LEE2019, VINYALS2016
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_GROUP_NORM = """@inproceedings{wu2018group,
  title = {Group Normalization},
  author = {Wu, Yuxin and He, Kaiming},
  booktitle = {European Conference on Computer Vision},
  year = {2018}
}"""


@hookimpl
def metaforge_models() -> Sequence[Component]:
    return [
        Component(
            kind="model",
            name="linear",
            target="metaforge_models.dense:Linear",
            options="metaforge_models.options:LinearOptions",
            summary="one affine layer on the flattened input",
        ),
        Component(
            kind="model",
            name="mlp",
            target="metaforge_models.dense:Mlp",
            options="metaforge_models.options:MlpOptions",
            summary="affine layers with relu between them, on the flattened input",
        ),
        Component(
            kind="model",
            name="conv4",
            target="metaforge_models.conv:Conv4",
            options="metaforge_models.options:Conv4Options",
            summary="four blocks of convolution, normaliser, relu and pooling, and a linear head",
            cites=(VINYALS2016, _GROUP_NORM),
        ),
        Component(
            kind="model",
            name="resnet12",
            target="metaforge_models.conv:ResNet12",
            options="metaforge_models.options:ResNet12Options",
            summary="residual blocks of three convolutions, mean pooling and a linear head",
            cites=(LEE2019, _GROUP_NORM),
        ),
    ]
