"""Each source's share of a mixture's tasks. Torch-free, and without pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import frexp, ldexp


def shares(sources: Iterable[str], weights: Mapping[str, float]) -> dict[str, float]:
    """``w / sum w`` for each source, whose weight w is 1 where not given.

    Weights are finite and positive. They are first divided by a power of two, which is exact,
    so that no sum of them is infinite.
    """
    given = {name: float(weights.get(name, 1.0)) for name in sources}
    _, exponent = frexp(max(given.values()))
    scaled = {name: ldexp(weight, -exponent) for name, weight in given.items()}
    total = sum(scaled.values())
    return {name: weight / total for name, weight in scaled.items()}
