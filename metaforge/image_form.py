"""The form in which all images of a data set are given. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from metaforge.errors import DataError

#: Pixels of an image that is not refused: a file of bytes may claim any number.
MOST_PIXELS = 10**8


@dataclass(frozen=True)
class ImageForm:
    """Channels, 1 (grey) or 3 (RGB), and size. Raises ``DataError`` for other numbers."""

    channels: int
    height: int
    width: int

    def __post_init__(self) -> None:
        sides_fit = min(self.height, self.width) >= 1
        if self.channels not in (1, 3) or not sides_fit or self.height * self.width > MOST_PIXELS:
            raise DataError(
                f"images of {self.channels} channels, {self.height} x {self.width} pixels; "
                f"expected 1 channel (grey) or 3 (RGB), and 1 to {MOST_PIXELS:,} pixels"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width


class Wanted(NamedTuple):
    """What is asked for of the form: channels, and height and width; None for what is common."""

    channels: int | None = None
    size: tuple[int, int] | None = None
