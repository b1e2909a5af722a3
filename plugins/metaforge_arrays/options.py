"""Options of the data set ``arrays``."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, WithJsonSchema, model_validator

from metaforge.image_options import Augment
from metaforge.task_options import TaskOptions

#: The name of an array in the file, or the array itself.
Array = Annotated[Any, WithJsonSchema({"type": ["string", "array"]})]
Share = Annotated[float, Field(ge=0, le=1)]
Split = Literal["train", "val", "test"]


class ArraysOptions(TaskOptions):
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
    group: Array = Field(None, description="a group (superclass, alphabet, ...) for each class")
    group_names: Array = Field(None, description="names of the numbers in group")
    within: Share = Field(
        0.0, description="share of tasks whose classes are all of one group; 1 for all"
    )
    sample_group: Array = Field(
        None,
        description="a group for each row (drawer, film, ...) that is never in both the support "
        "and the queries of a task",
    )
    split: Array = Field(
        (0.64, 0.16, 0.2),
        description="train, val or test (or 0, 1, 2) for each class or each row; or three "
        "shares that sum to 1",
    )
    split_values: dict[Split, Any] | None = Field(
        None,
        description="what split's own values mean, e.g. {train: background, test: evaluation}",
    )
    split_by: Literal["class", "group"] = Field(
        "class", description="what shares (and val_share) divide: classes, or whole groups"
    )
    split_seed: int = Field(0, description="seed of the division, apart from the run's seed")
    val_share: Share = Field(
        0.0, description="share of the training classes that become val, where split has none"
    )
    licence: str = Field("not stated", description="the data's licence, for the results")

    @property
    def shares(self) -> tuple[float, float, float] | None:
        """The shares of train, val and test, where ``split`` is three of them."""
        three = isinstance(self.split, list | tuple) and len(self.split) == 3
        if not three or not any(isinstance(share, float) for share in self.split):
            return None
        train, val, test = map(float, self.split)
        return train, val, test

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.shares is not None and (abs(sum(self.shares) - 1) > 1e-6 or min(self.shares) < 0):
            raise ValueError(f"split: the shares {list(self.shares)} do not sum to 1")
        if self.storage == "disk" and (self.path is None or not isinstance(self.x, str)):
            raise ValueError("storage: disk needs path, and x by its name there")
        if self.features is not None and self.augment.rotations != "none":
            raise ValueError(
                "augment.rotations: the features are those of images that are not turned: leave "
                "features out, or set rotations: none"
            )
        if self.group is None:
            unmet = [name for name in ("within", "group_names") if getattr(self, name)]
            unmet += ["split_by: group"] if self.split_by == "group" else []
            if unmet:
                raise ValueError(f"{', '.join(unmet)}: needs group, a group for each class")
        unread = {"split_values"} if self.shares is not None else set()
        if self.shares is None and not self.val_share:
            unread = {"split_by", "split_seed"}
        if unread := unread & self.model_fields_set:
            why = "split is shares" if self.shares is not None else "nothing is divided by shares"
            raise ValueError(f"{', '.join(sorted(unread))}: not read, as {why}")
        return self
