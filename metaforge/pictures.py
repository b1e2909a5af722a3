"""Samples as small pictures: images of any numbers as bytes, and strips of them as PNG files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

#: The longer side of a picture in a strip, at most, in pixels.
SIDE = 32
#: What an image is in at least: smaller things are numbers laid out in a square.
_LEAST_SIDE = 4
#: Pixels between the pictures of a strip.
_GAP = 2


def is_image(shape: Sequence[int]) -> bool:
    """Whether a sample of this shape is an image [c, h, w], grey or of three colours."""
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= _LEAST_SIDE


def as_bytes(images: np.ndarray) -> np.ndarray:
    """uint8 of [n, c, h, w]: bytes as they are, numbers of [0, 1] times 255, and others stretched
    from their least to their greatest; what is not finite is 0."""
    if images.dtype == np.uint8:
        return images
    values = np.nan_to_num(np.asarray(images, dtype=np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    if low < 0 or high > 1:
        values = (values - low) / max(high - low, 1e-300)
    return np.rint(values * 255).astype(np.uint8)


def strip(images: np.ndarray) -> bytes:
    """A PNG file of uint8 [n, c, h, w] side by side, each reduced to ``SIDE`` pixels at most."""
    from PIL import Image as pillow

    shown = [_reduced(image) for image in images]
    step = shown[0].width + _GAP
    sheet = pillow.new("RGBA", (step * len(shown) - _GAP, shown[0].height))
    for place, one in enumerate(shown):
        sheet.paste(one, (step * place, 0))
    return png(sheet)


def _reduced(image: np.ndarray) -> Image:
    from PIL import Image as pillow

    plain = image[0] if len(image) == 1 else np.moveaxis(image, 0, -1)
    found = pillow.fromarray(np.ascontiguousarray(plain))
    found.thumbnail((SIDE, SIDE), pillow.Resampling.BOX)
    return found


def png(image: Image) -> bytes:
    """The PNG file of a Pillow image."""
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return file.getvalue()
