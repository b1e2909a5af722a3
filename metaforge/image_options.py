"""Options of data sets of images: their features, and how they are varied as tasks are drawn.
Torch-free."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from metaforge.options import Choice, Options, choice


class FeatureOptions(Options):
    """What ``metaforge.embedding.views`` does with a data set's images."""

    input: Literal["auto", "features", "images"] = Field(
        "auto",
        description="what the inner algorithm sees; auto: features if there is a backbone. "
        "Kernels see features if there are",
    )
    backbone: Choice | None = choice(
        "backbone", optional=True, description="images to features; null for none"
    )
    normalize: Literal["l2", "none"] = Field(
        "l2", description="of features: each image's to unit length, or as they are"
    )

    @property
    def sees_images(self) -> bool:
        """Whether the inner algorithm gets images."""
        return self.input == "images" or (self.input == "auto" and self.backbone is None)

    @model_validator(mode="after")
    def _features_have_a_source(self) -> Self:
        if self.backbone is None and self.input == "features":
            raise ValueError("input: features needs a backbone; name one, or set input: images")
        if self.backbone is None and "normalize" in self.model_fields_set:
            raise ValueError("normalize: not read, as there is no backbone")
        return self


class Augment(Options):
    """What ``metaforge.turned`` and ``metaforge.augmentation`` do."""

    rotations: Literal["none", "train", "all"] = Field(
        "none",
        description="further classes, each a class turned by 90, 180 or 270 degrees (Omniglot): "
        "in meta-training alone, or in every split",
    )
    crop: NonNegativeInt = Field(
        0, description="in meta-training: a random crop of the image padded by so many zeros"
    )
    flip: bool = Field(
        False, description="in meta-training: left and right exchanged, at random, of every image"
    )

    @property
    def moves(self) -> bool:
        """Whether samples of meta-training change."""
        return bool(self.crop or self.flip)

    @property
    def any(self) -> bool:
        return self.moves or self.rotations != "none"

    def unfit_images(self, shape: tuple[int, ...]) -> str:
        """Why samples of a shape cannot be varied so, with what to do; or nothing."""
        if not self.any:
            return ""
        if len(shape) != 3:
            return f"augment is for images; the samples have shape {list(shape)}: leave it out"
        _, height, width = shape
        if self.rotations != "none" and height != width:
            return (
                f"augment.rotations needs square images; found {height} x {width}: make them "
                "square, or set rotations: none"
            )
        if self.crop >= min(height, width):
            return (
                f"augment.crop is {self.crop}, and a crop of images of {height} x {width} may then "
                f"show nothing of them: set it below {min(height, width)}"
            )
        return ""
