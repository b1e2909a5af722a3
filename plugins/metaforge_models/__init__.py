"""Networks for MAML-like inner algorithms: ``linear``, ``mlp``, ``conv4``, ``resnet12``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_GROUP_NORM = """@inproceedings{wu2018group,
  title = {Group Normalization},
  author = {Wu, Yuxin and He, Kaiming},
  booktitle = {European Conference on Computer Vision},
  year = {2018}
}"""

_CONV4 = """@inproceedings{vinyals2016matching,
  title = {Matching Networks for One Shot Learning},
  author = {Vinyals, Oriol and Blundell, Charles and Lillicrap, Timothy and Kavukcuoglu, Koray
            and Wierstra, Daan},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2016}
}"""

_RESNET12 = """@inproceedings{lee2019meta,
  title = {Meta-Learning with Differentiable Convex Optimization},
  author = {Lee, Kwonjoon and Maji, Subhransu and Ravichandran, Avinash and Soatto, Stefano},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year = {2019}
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
            cites=(_CONV4, _GROUP_NORM),
        ),
        Component(
            kind="model",
            name="resnet12",
            target="metaforge_models.conv:ResNet12",
            options="metaforge_models.options:ResNet12Options",
            summary="residual blocks of three convolutions, mean pooling and a linear head",
            cites=(_RESNET12, _GROUP_NORM),
        ),
    ]
