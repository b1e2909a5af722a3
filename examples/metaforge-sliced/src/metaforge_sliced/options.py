"""Options of the kernel and of the weighting. Torch-free, as every command may read them."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from metaforge.options import Options


class SlicedOptions(Options):
    directions: PositiveInt = Field(32, description="random directions that sets are seen along")
    quantiles: PositiveInt = Field(10, description="levels of the quantile functions")
    width: PositiveFloat = Field(1.0, description="in units of the median distance of bank tasks")


class SoftmaxNearestOptions(Options):
    neighbours: PositiveInt = Field(50, description="bank tasks with a weight; ties share it")
    temperature: PositiveFloat = Field(0.1, description="of the softmax of kernel values")
