"""Options of the data sets that the field compares on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from metaforge.image_options import Augment, FeatureOptions
from metaforge.task_options import TaskOptions

Share = Annotated[float, Field(ge=0, le=1)]
Within = Annotated[
    float,
    Field(ge=0, le=1, description="share of tasks whose classes are all of one group; 1 for all"),
]
Side = Annotated[PositiveInt, Field(le=2048)]


class BenchmarkOptions(FeatureOptions, TaskOptions):
    """Base of them: where the files are, and how their images are given."""

    NAME: ClassVar[str]

    path: Path = Field(
        Path("$METAFORGE_DATA"),
        description="the folder that has the files, or one file of features; relative to the "
        "recipe; $VARIABLES and ~ are expanded. `metaforge data NAME` tells what is looked for",
    )
    whole: bool = Field(
        True,
        description="refuse files that are not the whole published data set; false takes what is "
        "there, and its name in the results then says so",
    )
    storage: Literal["memory", "disk"] = Field(
        "memory",
        description="disk: images are put once into the cache folder, and of them only the rows "
        "that tasks ask for are read",
    )
    augment: Augment = Field(
        default_factory=Augment, description="how images are varied as tasks are drawn"
    )
    within: Within = 0.0

    @property
    def is_features(self) -> bool:
        """Whether ``path`` is a file of features, which ``arrays`` reads."""
        return False

    @model_validator(mode="after")
    def _images_are_as_they_are(self) -> Self:
        if self.backbone is not None and not self.sees_images and self.augment.any:
            raise ValueError(
                "augment: the features are those of images as they are: set input: images, or "
                "leave augment out"
            )
        if self.backbone is not None and self.augment.rotations != "none":
            raise ValueError(
                "augment.rotations: a backbone's features are those of images that are not turned: "
                "set rotations: none, or backbone: null"
            )
        return self


class OmniglotOptions(BenchmarkOptions):
    """Handwritten characters of 50 alphabets, each drawn by 20 people."""

    NAME = "omniglot"

    size: Side = Field(28, description="pixels along a side; the files have 105, packed bits 28")
    invert: bool = Field(True, description="ink is 1 and paper 0; false: as in the files, ink 0")
    split: Literal["lake", "alphabets", "vinyals"] = Field(
        "lake",
        description="lake: background alphabets train (val_share of them val), evaluation ones "
        "test; alphabets: all 50 by shares; vinyals: 1028, 172 and 423 characters, which mixes "
        "alphabets, where the packed bits or lists tell it",
    )
    val_share: Share = Field(0.2, description="share of the background alphabets that are val")
    shares: tuple[Share, Share, Share] = Field(
        (0.6, 0.2, 0.2), description="of the alphabets in train, val and test"
    )
    split_seed: int = Field(0, description="seed of these divisions, apart from the run's seed")
    lists: Path | None = Field(
        None,
        description="a folder of train.txt, val.txt and test.txt, with a line ALPHABET/CHARACTER "
        "for each class: the vinyals split of your own copy",
    )
    drawers: bool = Field(
        False,
        description="never the same drawer in both the support and the queries of a task",
    )

    @model_validator(mode="after")
    def _read(self) -> Self:
        of_split = {
            "lake": {"val_share", "split_seed"},
            "alphabets": {"shares", "split_seed"},
            "vinyals": {"lists"},
        }
        every = set().union(*of_split.values())
        if unread := sorted((every - of_split[self.split]) & self.model_fields_set):
            raise ValueError(f"{', '.join(unread)}: not read, as split is {self.split}")
        if abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(f"shares: {list(self.shares)} do not sum to 1")
        return self


class CifarOptions(BenchmarkOptions):
    """Base of those that are made of CIFAR-100; superclasses are the groups."""

    @property
    def is_features(self) -> bool:
        return self.path.suffix == ".npz"

    @model_validator(mode="after")
    def _features_have_a_source(self) -> Self:
        if not self.is_features:
            return FeatureOptions._features_have_a_source(self)  # type: ignore[operator]
        unread = {"backbone", "storage", "augment", "whole"} & self.model_fields_set
        if unread or self.input == "images":
            named = sorted(unread) + (["input: images"] if self.input == "images" else [])
            raise ValueError(f"{', '.join(named)}: not read, as {self.path.name} holds features")
        return self


class CifarFsOptions(CifarOptions):
    """64, 16 and 20 classes of CIFAR-100, split at random by Bertinetto et al. (2019)."""

    NAME = "cifar_fs"


class Fc100Options(CifarOptions):
    """12, 4 and 4 superclasses of CIFAR-100, by Oreshkin et al. (2018)."""

    NAME = "fc100"


class MiniImagenetOptions(BenchmarkOptions):
    """100 classes of ImageNet, 600 images each, split 64, 16 and 20."""

    NAME = "mini_imagenet"

    size: Side = Field(84, description="pixels along a side; of pickles it is theirs")


class TieredImagenetOptions(BenchmarkOptions):
    """608 classes of ImageNet in 34 superclasses, which are divided 20, 6 and 8."""

    NAME = "tiered_imagenet"

    size: Side = Field(84, description="pixels along a side; of pickles it is theirs")
