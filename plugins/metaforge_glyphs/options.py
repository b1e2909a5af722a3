"""Options of the data set ``glyphs`` and of the backbone ``glyph_conv``."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from metaforge.image_options import FeatureOptions
from metaforge.options import Choice, Options, choice
from metaforge.task_options import Count, TaskOptions

#: Pixels along a side of an image.
SIZE = 28

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Rotation = Annotated[float, Field(ge=0, le=180, description="degrees, at most, either way")]
Shear = Annotated[float, Field(ge=0, lt=1, description="horizontal, at most, either way")]
Scale = Annotated[float, Field(ge=0, lt=1, description="log scale of each axis, at most")]
Shift = Annotated[float, Field(ge=0, le=14, description="pixels along each axis, at most")]
Noise = Annotated[float, Field(ge=0, le=1, description="sd of the noise on every pixel (ink: 1)")]
Occlusion = Annotated[
    float, Field(ge=0, lt=1, description="side of the hidden square, at most; the image's is 1")
]


class Distortion(Options):
    """How far an image strays from the clean letter: a fair print."""

    rotation: Rotation = 2.0
    shear: Shear = 0.02
    scale: Scale = 0.08
    shift: Shift = 2.0
    noise: Noise = 0.05
    occlusion: Occlusion = 0.0


class BadScan(Distortion):
    """A letter stays the same letter however badly it is scanned."""

    rotation: Rotation = 10.0
    shear: Shear = 0.1
    scale: Scale = 0.25
    noise: Noise = 0.25
    occlusion: Occlusion = 0.45


class Distortions(Options):
    """Of the images of each kind of task: weight and slant tell a typeface, not a letter."""

    letters: BadScan = Field(default_factory=BadScan, description="which letter: a bad scan")
    typefaces: Distortion = Field(
        default_factory=Distortion, description="which typeface: a fair print"
    )


class Kinds(Options):
    """Shares of the kinds of tasks; a share of 0 leaves a kind out."""

    letters: Share = Field(0.5, description="which letter is it; typefaces vary")
    typefaces: Share = Field(0.5, description="which typeface is it; letters vary")

    @model_validator(mode="after")
    def _some_kind(self) -> Self:
        if not self.letters + self.typefaces > 0:
            raise ValueError("letters and typefaces are both 0; give one a positive share")
        return self


class GlyphsOptions(FeatureOptions, TaskOptions):
    """Tasks on letters: which letter is it, or which typeface."""

    shots: Count = Field(5, description="support images of a class; [low, high] draws a number")
    kinds: Kinds = Field(default_factory=Kinds, description="shares of the kinds of tasks")
    within: bool = Field(True, description="draw the letters of a task from one script")
    per_letter: PositiveInt = Field(
        40, description="images of a letter for the letter tasks, spread over its typefaces"
    )
    per_face: PositiveInt = Field(
        3, description="images of a letter in one typeface for the typeface tasks"
    )
    distortion: Distortions = Field(
        default_factory=Distortions, description="how far images stray from the clean letter"
    )
    image_seed: NonNegativeInt = Field(
        0, description="seed of the images; the run's seed draws tasks alone"
    )
    input: Literal["features", "images"] = Field(
        "features", description="what the inner algorithm sees; kernels see features if there are"
    )
    backbone: Choice | None = choice(
        "backbone", "glyph_conv", description="images to features; null for none"
    )


class GlyphConvOptions(Options):
    """Three blocks of convolution, pooling, batch norm and relu, then one affine layer."""

    weights: Literal["shipped", "none"] | Path = Field(
        "shipped",
        description="shipped: pre-trained on the meta-train scripts; none: drawn at random; "
        "or a safetensors file that `metaforge pretrain` wrote",
    )
    channels: tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        (16, 32, 64), description="channels of the blocks"
    )
    width: PositiveInt = Field(64, description="number of features")
    invert: Literal["auto"] | bool = Field(
        "auto",
        description="whether dark and bright are exchanged, as glyphs are ink 1 on ground 0; auto: "
        "of each image whose outermost pixels are bright, above 1/2 in the mean",
    )
