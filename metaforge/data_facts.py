"""What is known of a data set before it is loaded. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DataFacts:
    """Facts that a check can have at once; None or nothing where they take the data itself.

    width    numbers of a sample's features (of the input, if there are none)
    shape    of a sample as the inner algorithm gets it: [p], or [channels, height, width]
    classes  names of the classes of each split, the same name for the same thing
    tasks    their kind, where it takes the options to tell
    """

    width: int | None = None
    classes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tasks: str | None = None
    shape: tuple[int, ...] | None = None
