"""Options of the weightings."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from metaforge.options import Options, Validated

#: What ``lambda: validate`` tries: the paper's practice, its theorem, and ridges around.
LAMBDAS = (1e-8, 1e-4, "n^-1/2", 1.0, 100.0)


class TasmlOptions(Options):
    lambda_: PositiveFloat | Literal["n^-1/2", "validate"] = Field(
        "n^-1/2",
        alias="lambda",
        description="ridge on the kernel matrix: a number (1e-8 interpolates, the paper's "
        "practice), or n^-1/2, the choice of its theorem; validate: chosen on validation targets "
        "among 1e-8, 1e-4, n^-1/2, 1 and 100",
    )

    def validated(self) -> Validated | None:
        if self.lambda_ != "validate":
            return None
        return Validated({"lambda": "n^-1/2"}, {"lambda": LAMBDAS})


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
