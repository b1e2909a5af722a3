"""A folder of 2000 small images to predictions, by the three commands of README.md.

Each is a process of its own, as a user starts it, with an empty cache. The images are noise, which
takes as long to read and to put through a network as drawings do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.harness import Row

#: Seconds that all three may take.
MOST = 60.0
CLASSES, EACH, SIDE = 100, 20, 56
COMMANDS = (
    "embed drawings --backbone glyph_conv --out drawings.npz --quiet",
    "adapt glyphs --support few --out model --quiet",
    "predict model drawings.npz --out predictions.csv --quiet",
)


def rows(classes: int = CLASSES) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "drawings", classes, EACH)
        _write(folder / "few", 5, 4)
        took = [_seconds(command, folder) for command in COMMANDS]
    told = ", ".join(f"{c.split()[0]} {s:.1f} s" for c, s in zip(COMMANDS, took, strict=True))
    peer = f"{MOST:.0f} s"
    yield Row(
        f"embed, adapt, predict: {classes * EACH} images of {SIDE} x {SIDE} pixels",
        peer,
        {peer: (MOST,), "metaforge": (sum(took),)},
        {"metaforge": 1.0},
        told,
    )


def _write(folder: Path, classes: int, each: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(classes):
        place = folder / f"{number:03}"
        place.mkdir(parents=True)
        for image in range(each):
            pixels = rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{image}.png")


def _seconds(command: str, folder: Path) -> float:
    environment = {**os.environ, "METAFORGE_CACHE": str(folder / "cache")}
    start = time.perf_counter()
    words = [sys.executable, "-m", "metaforge", *command.split()]
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start
