"""Options of the data set ``torch``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from metaforge.class_options import SHARES, ClassOptions, Share
from metaforge.image_options import Augment

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
