"""Options of the data set ``sinusoids``."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt

from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.options import Options

Family = Literal["sine", "line", "quadratic", "tanh", "absolute"]
FAMILIES: tuple[Family, ...] = get_args(Family)


def _distinct(families: tuple[Family, ...]) -> tuple[Family, ...]:
    if not families:
        raise ValueError("give at least one family")
    if len(set(families)) < len(families):
        raise ValueError("a family is given twice")
    return families


class SinusoidsOptions(Options):
    families: Annotated[tuple[Family, ...], AfterValidator(_distinct)] = Field(
        FAMILIES, description="families of curves; each task is of one, all equally likely"
    )
    shots: PositiveInt = Field(10, le=10**6, description="support points of a task")
    queries: PositiveInt = Field(15, le=10**6, description="query points of a task")
    noise: NonNegativeFloat = Field(
        0.0, description="standard deviation of the noise on support and query outputs"
    )


def facts(options: SinusoidsOptions, context: Context) -> DataFacts:
    """One number in, one out."""
    return DataFacts(width=1, shape=(1,))
