"""Options of the weightings."""

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from metaforge.options import Options, Validated

#: What ``lambda: validate`` tries: the paper's practice, its theorem, and ridges around.
LAMBDAS = (1e-8, 1e-4, "n^-1/2", 1.0, 100.0)
#: Landmarks where ``rank`` does not say.
LANDMARKS = 1000


class TasmlOptions(Options):
    lambda_: PositiveFloat | Literal["n^-1/2", "validate"] = Field(
        "n^-1/2",
        alias="lambda",
        description="ridge on the kernel matrix: a number (1e-8 interpolates, the paper's "
        "practice), or n^-1/2, the choice of its theorem; validate: chosen on validation targets "
        "among 1e-8, 1e-4, n^-1/2, 1 and 100",
    )
    solver: Literal["exact", "float32", "cg", "nystrom"] = Field(
        "exact",
        description="exact: Cholesky in float64, 8 N^2 bytes; float32: 4 N^2 bytes, refined to a "
        "residual of 1e-8; cg: conjugate gradients to that residual, without the N x N matrix; "
        "nystrom: an approximation from rank tasks of the bank",
    )
    rank: PositiveInt | None = Field(
        None,
        description="bank tasks that nystrom approximates the bank by, and cg preconditions by: "
        f"{LANDMARKS}, or the whole of a smaller bank, unless given",
    )

    @model_validator(mode="after")
    def _rank_is_read(self) -> Self:
        if self.rank is not None and self.solver not in ("cg", "nystrom"):
            raise ValueError(
                f"solver: {self.solver} does not read rank: leave it out, or take solver: nystrom "
                "or cg"
            )
        return self

    def landmarks(self, n_tasks: int) -> int:
        """How many of the bank's tasks nystrom and cg take."""
        return min(self.rank or LANDMARKS, n_tasks)

    def unfit_bank(self, size: int) -> str:
        if self.rank is None or self.rank <= size:
            return ""
        return (
            f"rank: {self.rank} is more than bank.size: {size}, whose tasks it counts: take at "
            f"most {size}, or leave it out"
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
