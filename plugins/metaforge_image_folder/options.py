"""Options of the data set ``image_folder``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from metaforge.class_options import SHARES, ClassOptions, Share
from metaforge.image_form import MOST_PIXELS, Wanted
from metaforge.image_options import Augment, FeatureOptions


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from error
    return text


class ImageFolderOptions(FeatureOptions, ClassOptions):
    """Tasks on images that lie in a folder for each class."""

    path: Path = Field(
        description="folder of CLASS/*.png, or SPLIT/CLASS/*.png where all its folders are named "
        "train, val, test; relative to the recipe (in key=value: to the current folder)"
    )
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="pixels along a side, or [height, width]; by default what the backbone takes, "
        "if it alone sees the images; else the most common size, shrunk to at most 84 along its "
        "longer side",
    )
    channels: Literal[1, 3] | None = Field(
        None,
        description="1 for grey, 3 for RGB; by default what the backbone takes, if it alone sees "
        "the images; else 3 if any has colours",
    )
    group: Literal["folders"] | Path | None = Field(
        None,
        description="groups of classes: folders above them (GROUP/CLASS/*.png), or a table (csv, "
        "parquet) with columns class and group",
    )
    sample_group: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None,
        description="regular expression for what paths of near-duplicates have in common (a film, "
        "a drawer), e.g. '(clip\\d+)_frame'; such images are never in both the support and the "
        "queries of a task",
    )
    split: Literal["auto", "folders"] | Path | tuple[Share, Share, Share] = Field(
        "auto",
        description="folders: by the folders train, val, test; three shares of the classes that "
        "sum to 1; or a table (csv, parquet) with columns class, or file, and split. auto: folders "
        "if there are such, else 0.64, 0.16, 0.2",
    )
    duplicates: Literal["error", "keep"] = Field(
        "error", description="files of the same content in two classes: stop, or keep them"
    )
    storage: Literal["memory", "disk"] = Field(
        "memory",
        description="disk: of the decoded images, which the cache folder keeps, only the rows that "
        "tasks ask for are read",
    )
    augment: Augment = Field(
        default_factory=Augment, description="how images are varied as tasks are drawn"
    )

    @property
    def shares(self) -> tuple[float, float, float] | None:
        """With ``auto`` those that classes get where the folder has no splits."""
        return SHARES if self.split == "auto" else super().shares

    @property
    def has_groups(self) -> bool:
        return self.group is not None

    @property
    def wanted(self) -> Wanted:
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        return Wanted(self.channels, size)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        height, width = self.wanted.size or (1, 1)
        if height * width > MOST_PIXELS:
            raise ValueError(f"size: {height} x {width} is more than {MOST_PIXELS:,} pixels")
        if self.augment.rotations != "none" and self.backbone is not None:
            raise ValueError(
                "augment.rotations: the features are those of images that are not turned: leave "
                "the backbone out, or set rotations: none"
            )
        if self.augment.moves and self.backbone is not None and not self.sees_images:
            raise ValueError(
                "augment: features are of images as they are: set input: images, or leave it out"
            )
        return self


def with_split(options: ImageFolderOptions, split: Any) -> ImageFolderOptions:
    """The options with ``split: auto`` decided."""
    return options.model_copy(update={"split": split}) if options.split == "auto" else options
