"""Options of how large tasks are, for data sets that draw them from pools of classes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from metaforge.options import Options
from metaforge.task_sizes import TaskSizes, TooFew


def _ordered(count: int | tuple[int, int]) -> int | tuple[int, int]:
    if isinstance(count, tuple) and count[0] > count[1]:
        raise ValueError(f"the range {list(count)} is [high, low]; write [low, high]")
    return count


#: Rows of a task are held at once.
_Rows = Annotated[PositiveInt, Field(le=10**6)]

#: A number, or a range from which each class of each task draws its own.
Count = Annotated[_Rows | tuple[_Rows, _Rows], AfterValidator(_ordered)]


class TaskOptions(Options):
    """Base of such a data set's options."""

    ways: Annotated[int, Field(ge=2)] = Field(5, description="classes of a task")
    shots: Count = Field(1, description="support rows of a class; [low, high] draws a number")
    queries: Count = Field(15, description="query rows of a class; [low, high] draws a number")
    too_few: TooFew = Field(
        "error",
        description="classes with too few rows: stop; leave them out; or repeat query rows",
    )

    def sizes(self) -> TaskSizes:
        return TaskSizes(self.ways, self.shots, self.queries, self.too_few)
