"""Options of the data set ``arrays``."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, WithJsonSchema, model_validator

from metaforge.class_options import SHARES, ClassOptions
from metaforge.image_options import Augment

#: The name of an array in the file, or the array itself.
Array = Annotated[Any, WithJsonSchema({"type": ["string", "array"]})]


class ArraysOptions(ClassOptions):
    path: Path | None = Field(
        None,
        description="npz file, or a folder of npy files, relative to the recipe (in key=value: to "
        "the current folder); $VARIABLES and ~ are expanded; none for arrays in memory",
    )
    x: Array = Field(
        "X",
        description="features [n, p], or images [n, h, w], [n, c, h, w] or [n, h, w, c]; "
        "bytes become floats in [0, 1]",
    )
    y: Array = Field("y", description="class labels [n]: whole numbers, floats or strings")
    features: Array = Field(
        None, description="features [n, p] of the same rows for the task kernel, if x is not"
    )
    bits: tuple[PositiveInt, ...] | None = Field(
        None, description="shape of one image where x holds packed bits, e.g. [28, 28]"
    )
    storage: Literal["memory", "disk"] = Field(
        "memory",
        description="disk: images stay on disk, and of them only the rows that tasks ask for are "
        "read; those of an npz file are copied once to the cache folder",
    )
    augment: Augment = Field(
        default_factory=Augment, description="how images are varied as tasks are drawn"
    )
    normalize: Literal["none", "l2", "standardize"] = Field(
        "none",
        description="of features: rows to unit length, or columns to mean 0 and sd 1 over the "
        "training classes",
    )
    class_names: Array = Field(None, description="a name for each class; default: its label")
    group: Array = Field(
        None, description="a group (superclass, alphabet, ...) for each class, or each row"
    )
    group_names: Array = Field(None, description="names of the numbers in group")
    sample_group: Array = Field(
        None,
        description="a group for each row (drawer, film, ...) that is never in both the support "
        "and the queries of a task",
    )
    sample_names: Array = Field(
        None, description="a name for each row (its file, ...) for targets.jsonl; default: numbers"
    )
    split: Array = Field(
        SHARES,
        description="train, val or test (or 0, 1, 2) for each class or each row; or three "
        "shares that sum to 1",
    )

    @property
    def has_groups(self) -> bool:
        return self.group is not None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.storage == "disk" and (self.path is None or not isinstance(self.x, str)):
            raise ValueError("storage: disk needs path, and x by its name there")
        if self.features is not None and self.augment.rotations != "none":
            raise ValueError(
                "augment.rotations: the features are those of images that are not turned: leave "
                "features out, or set rotations: none"
            )
        return self
