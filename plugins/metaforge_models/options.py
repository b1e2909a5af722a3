"""Options of the models."""

from typing import Annotated, ClassVar, Literal, Self

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


class ConvolutionalOptions(NormOptions):
    """Of a network that halves an image's sides again and again."""

    model_name: ClassVar[str]

    @property
    def halvings(self) -> int:
        """How often; each takes two pixels to one."""
        raise NotImplementedError

    def unfit_inputs(self, shape: tuple[int, ...]) -> str:
        if len(shape) != 3:
            return (
                f"model {self.model_name} needs images [channels, height, width]; the tasks' "
                f"inputs have shape {list(shape)}; use model linear or mlp for vectors, or data "
                "that are images (of glyphs: input: images)"
            )
        (_, height, width), least = shape, 2**self.halvings
        if min(height, width) < least:
            return (
                f"model {self.model_name} halves images {self.halvings} times and needs at least "
                f"{least} x {least} pixels; found {height} x {width}"
            )
        return ""


class Conv4Options(ConvolutionalOptions):
    model_name = "conv4"
    filters: PositiveInt = Field(64, description="channels of each of the four blocks")

    @property
    def halvings(self) -> int:
        return 4


class ResNet12Options(ConvolutionalOptions):
    model_name = "resnet12"
    widths: Widths = Field(
        (64, 160, 320, 640), description="channels of the residual blocks, each of 3 convolutions"
    )

    @property
    def halvings(self) -> int:
        return len(self.widths)
