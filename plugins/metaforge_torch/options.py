"""Options of the data sets ``torch`` and ``ready``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, WithJsonSchema

from metaforge.class_options import SHARES, ClassOptions, Share
from metaforge.image_options import Augment
from metaforge.options import Options

#: An object of Python, which no recipe can hold.
Held = Annotated[Any, WithJsonSchema({"type": ["object", "array"]})]


class TorchOptions(ClassOptions):
    """Tasks on the samples of a data set that is given from Python."""

    dataset: Held = Field(
        description="map-style torch Dataset of (x, y), a list of such pairs, arrays (X, y), or "
        "one of these for each of train, val and test; from Python alone"
    )
    augment: Augment = Field(
        default_factory=Augment, description="how images are varied as tasks are drawn"
    )
    normalize: Literal["none", "l2", "standardize"] = Field(
        "none",
        description="of features: rows to unit length, or columns to mean 0 and sd 1 over the "
        "training classes",
    )
    group: Held = Field(None, description="a group (superclass, ...) for each class, as an array")
    sample_group: Held = Field(
        None,
        description="a group for each sample (drawer, film, ...) that is never in both the support "
        "and the queries of a task, as an array",
    )
    split: Annotated[
        tuple[Share, Share, Share] | Any, WithJsonSchema({"type": ["object", "array"]})
    ] = Field(
        SHARES,
        description="three shares of the classes that sum to 1, or an array with train, val or "
        "test for each class or sample; not read where there is a data set for each split",
    )

    @property
    def has_groups(self) -> bool:
        return self.group is not None


def has_groups(options: TorchOptions) -> bool:
    """Whether tasks have groups: those that are drawn within a class group are of it."""
    return options.within > 0


class ReadyOptions(Options):
    """Tasks as they are given: nothing is drawn but their order."""

    path: Path | None = Field(
        None,
        description="npz file, or folder of npy files, with x [T, k, *x], y [T, k] and split [T] "
        "of T tasks of k samples; relative to the recipe",
    )
    tasks: Held = Field(
        None,
        description="from Python: tasks for each of train, val and test, learn2learn Tasksets or "
        "lists of (x [k, *x], y [k])",
    )
    draw: PositiveInt | None = Field(
        None, description="tasks drawn of a Taskset without end; of others, at most so many"
    )
    ways: Annotated[int, Field(ge=2)] = Field(5, description="classes that every task has")
    shots: PositiveInt = Field(
        1, description="support rows of a class: the first of its rows in the task"
    )
    queries: PositiveInt = Field(15, description="query rows of a class: the next ones")
    licence: str = Field("not stated", description="the data's licence, for the results")
