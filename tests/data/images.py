"""Folders of small images, made for a test. Pillow alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)  # type: ignore[arg-type]
    return path


def write_folder(
    root: Path,
    classes: int = 12,
    each: int = 6,
    size: tuple[int, ...] = (8, 8, 3),
    prefix: str = "",
    first: int = 0,
) -> Path:
    """Classes ``class 00``, ... of images ``0.png``, ..., of a shade of their own, with noise."""
    for number in range(first, first + classes):
        for image in range(each):
            pixels = noise(*size, seed=1000 * number + image) // 4 + 16 * (number % 12)
            write(root / f"{prefix}class {number:02}" / f"{image}.png", pixels.astype(np.uint8))
    return root
