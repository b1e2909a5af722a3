"""Options of ``learn2learn``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from metaforge.options import Choice, Options, choice


class Learn2learnOptions(Options):
    algorithm: Literal["MAML", "MetaSGD", "GBML"] = Field(
        "MAML",
        description="MAML: steps of one learning rate; MetaSGD: a learned rate for each entry; "
        "GBML: gradients go through learned transforms",
    )
    model: Choice = choice("model", "linear", description="the network that adapts")
    adapt: Literal["all", "head"] = Field(
        "all", description="head: the inner steps move the last affine layer alone (ANIL)"
    )
    steps: NonNegativeInt = Field(5, description="inner gradient steps; 0 leaves theta as it is")
    lr: PositiveFloat = Field(
        0.1,
        description="inner learning rate, on the mean support loss; MetaSGD's rates start from it",
    )
    order: Literal[1, 2] = Field(
        2, description="2: differentiate through the inner steps; 1: hold their gradients constant"
    )
    transform: Literal["meta_curvature", "kronecker"] | None = Field(
        None,
        description="GBML: a matrix for each axis of a weight (meta_curvature, its default), or "
        "a positive semi-definite pair (kronecker); both start as the identity",
    )
    allow_unused: bool = Field(
        False, description="hold constant the parameters that are frozen or unused by the output"
    )

    @model_validator(mode="after")
    def _only_gbml_transforms(self) -> Learn2learnOptions:
        if self.transform is not None and self.algorithm != "GBML":
            raise ValueError(
                f"transform: {self.algorithm} has none; drop it, or use algorithm: GBML"
            )
        return self
