"""Options of how images are varied as tasks are drawn, for data sets of images. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt

from metaforge.options import Options


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
