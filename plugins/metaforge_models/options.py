"""Options of the models."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from metaforge.options import Options

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
    def _norm_and_transductive_agree(self) -> Self:
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
