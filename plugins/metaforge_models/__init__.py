"""Networks for MAML-like inner algorithms: ``linear``, ``mlp``, ``conv4``, ``resnet12``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from metaforge.components import Component, Options
from metaforge.hookspecs import hookimpl

Widths = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class LinearOptions(Options):
    bias: bool = Field(True, description="add a bias to each output")


class MlpOptions(Options):
    hidden: Widths = Field((64,), description="widths of the hidden layers, each with a relu")


class NormOptions(Options):
    """What the convolutional networks share: their normaliser."""

    norm: Literal["layer", "batch"] = Field(
        "layer",
        description="layer: each sample by its own mean and variance over channels and pixels "
        "(group norm with one group); batch: each channel by the statistics of the batch at "
        "hand, with no running ones, which needs transductive: true",
    )
    transductive: bool = Field(
        False, description="accept that a prediction depends on the other samples of its batch"
    )

    @model_validator(mode="after")
    def _norm_and_transductive_agree(self) -> NormOptions:
        if self.norm == "batch" and not self.transductive:
            raise ValueError(
                "norm: batch normalises a query by the other queries, so its prediction depends "
                "on them; say transductive: true to accept that, or use norm: layer"
            )
        if self.transductive and self.norm != "batch":
            raise ValueError(f"transductive: true does nothing with norm: {self.norm}; drop it")
        return self


class Conv4Options(NormOptions):
    filters: PositiveInt = Field(64, description="channels of each of the four blocks")


class ResNet12Options(NormOptions):
    widths: Widths = Field(
        (64, 160, 320, 640), description="channels of the residual blocks, each of 3 convolutions"
    )


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
            options=LinearOptions,
            summary="one affine layer on the flattened input",
        ),
        Component(
            kind="model",
            name="mlp",
            target="metaforge_models.dense:Mlp",
            options=MlpOptions,
            summary="affine layers with relu between them, on the flattened input",
        ),
        Component(
            kind="model",
            name="conv4",
            target="metaforge_models.conv:Conv4",
            options=Conv4Options,
            summary="four blocks of convolution, normaliser, relu and pooling, and a linear head",
            cites=(_CONV4, _GROUP_NORM),
        ),
        Component(
            kind="model",
            name="resnet12",
            target="metaforge_models.conv:ResNet12",
            options=ResNet12Options,
            summary="residual blocks of three convolutions, mean pooling and a linear head",
            cites=(_RESNET12, _GROUP_NORM),
        ),
    ]
