"""Options of ``ls`` and ``r2d2``."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from metaforge.options import Options


class MapOptions(Options):
    """The feature map that both share."""

    hidden: PositiveInt | None = Field(
        None, description="width of the feature map's hidden layer; default: that of the input"
    )
    normalize: bool = Field(
        True,
        description="L2-normalise each input (classification tasks only); one that the data "
        "source has normalised stays as it is",
    )


class LsOptions(MapOptions):
    ridge: PositiveFloat = Field(0.1, description="strength of the ridge penalty, fixed")


class R2d2Options(MapOptions):
    ridge: PositiveFloat = Field(
        0.1, description="strength of the ridge penalty that learning starts from"
    )
    scale: PositiveFloat | None = Field(
        None,
        description="factor on the head's outputs that learning starts from; default: 10 for "
        "classification, 1 for regression",
    )
