"""Options of the weightings."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from metaforge.options import Options


class TasmlOptions(Options):
    lambda_: PositiveFloat | Literal["n^-1/2"] = Field(
        "n^-1/2",
        alias="lambda",
        description="ridge on the kernel matrix: a number (1e-8 interpolates, the paper's "
        "practice), or n^-1/2, the choice of its theorem",
    )


class UniformOptions(Options):
    pass


class UncertaintyOptions(Options):
    per: Literal["group", "task"] = Field(
        "group",
        description="what shares a log-variance: the tasks of a group, or none (one a task, "
        "which hardly moves in a large bank)",
    )
    clusters: PositiveInt = Field(
        10, description="k-means clusters of signatures that serve as groups where there are none"
    )
    learning_rate: PositiveFloat = Field(
        1e-2, description="learning rate of the log-variances, their own"
    )
