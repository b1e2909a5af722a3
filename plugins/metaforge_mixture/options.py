"""Options of the data set ``mixture``."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, ValidationInfo, model_validator

from metaforge.options import Choice, Options, named_choices
from metaforge.task_options import Count

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _of_a_source(name: str, info: ValidationInfo) -> str:
    """The key of a weight; ``sources``, the field before, is missing where it is faulty."""
    if name not in (sources := info.data.get("sources", {name: None})):
        raise ValueError(f"no source is named {name} (there are: {', '.join(sources)})")
    return name


class MixtureOptions(Options):
    """Data sets by name, their shares, and how each comes to the common width."""

    sources: dict[str, Choice] = named_choices(
        "dataset",
        hands_down=("ways", "shots", "queries"),
        description="data sets by a name of your own, which is the group of their tasks",
    )
    weights: dict[Annotated[str, AfterValidator(_of_a_source)], Weight] = Field(
        default_factory=dict, description="relative shares of tasks by source; 1 where not given"
    )
    ways: Annotated[int, Field(ge=2)] = Field(5, description="classes of a task, in every source")
    shots: Count = Field(1, description="support rows of a class, in every source")
    queries: Count = Field(15, description="query rows of a class, in every source")
    projection: Literal["pca", "discriminant", "none"] = Field(
        "pca",
        description="of each source's features, fitted on its training tasks: principal "
        "components, the directions that tell their classes apart, or none",
    )
    width: PositiveInt = Field(64, description="numbers of a sample after the projection")
    centre: bool = Field(
        False,
        description="subtract each source's mean: hides from a mean signature what tells the "
        "sources apart",
    )
    normalize: Literal["l2", "none"] = Field(
        "l2", description="of what is projected: each sample to unit length, or as it is"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.sources) < 2:
            raise ValueError(f"sources: a mixture needs at least two, found {len(self.sources)}")
        unread = {"width", "centre", "normalize"} & self.model_fields_set
        if self.projection == "none" and unread:
            raise ValueError(f"projection: none does not read {', '.join(sorted(unread))}")
        return self
