"""Options of ``ls`` and ``r2d2``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from metaforge.options import Choice, Options, choice


class MapOptions(Options):
    """The feature map that both share."""

    #: Not ``model``: of a recipe of maml, ``inner.use=ls`` would take over its network.
    network: Choice | None = choice(
        "model",
        optional=True,
        description="a model whose last layer the closed form replaces, for images; null: a "
        "residual layer on features",
    )
    hidden: PositiveInt | None = Field(
        None, description="width of the feature map's hidden layer; default: that of the input"
    )
    normalize: bool = Field(
        True,
        description="L2-normalise each input (classification tasks only); one that the data "
        "source has normalised stays as it is",
    )

    @model_validator(mode="after")
    def _read(self) -> Self:
        unread = sorted({"hidden", "normalize"} & self.model_fields_set)
        if self.network is not None and unread:
            raise ValueError(f"{', '.join(unread)}: not read, as network is given; leave out")
        return self


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
