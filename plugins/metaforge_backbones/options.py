"""Options of the backbones."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from metaforge.options import Options

Channels = Literal[1, 3]
Widths = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class PixelsOptions(Options):
    size: PositiveInt = Field(28, description="pixels along each side; images are brought to it")
    channels: Channels = Field(1, description="1 for grey, 3 for colours")


class NetworkOptions(Options):
    """What the networks share. There are no weights to be had by default: features of a network
    that has learned nothing would pass unnoticed."""

    weights: Literal["none"] | Path = Field(
        description="safetensors file that metaforge pretrain wrote; none: drawn at random, as to "
        "be trained"
    )
    channels: Channels = Field(3, description="of an image: 1 for grey, 3 for colours")


class Conv4Options(NetworkOptions):
    size: int = Field(84, ge=16, description="pixels along each side; images are brought to it")
    filters: PositiveInt = Field(64, description="channels of each of the four blocks")


class ResNet12Options(NetworkOptions):
    size: PositiveInt = Field(84, description="pixels along each side; images are brought to it")
    widths: Widths = Field(
        (64, 160, 320, 640), description="channels of the residual blocks, the last of the features"
    )

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        if self.size < (least := 2 ** len(self.widths)):
            raise ValueError(
                f"{len(self.widths)} blocks halve images of {self.size} pixels to nothing: set "
                f"size to {least} at least, or fewer widths"
            )
        return self
