"""The images of a catalogue, and their features: made once, kept in the cache folder."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from metaforge.components import Context
from metaforge.records import keep
from metaforge.seeding import derive
from metaforge_glyphs.catalogue import Catalogue
from metaforge_glyphs.fonts import fonts_digest
from metaforge_glyphs.options import SIZE, GlyphsOptions
from metaforge_glyphs.plan import KINDS
from metaforge_glyphs.render import render, renderer

#: Images drawn between two steps of progress.
_BLOCK = 2560


def cached(
    context: Context, name: str, shape: tuple[int, ...], make: Callable[[], np.ndarray]
) -> np.ndarray:
    """The array ``name`` of the cache folder, or ``make()``'s, which is then kept there.

    A damaged file is made anew; a folder that cannot be written costs the cache alone.
    """
    path = context.cache_dir / "glyphs" / f"{name}.npz"
    if os.path.isfile(path):
        try:
            return _read(path, shape)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            context.report(f"glyphs: {path} is damaged, making it anew")
    array = make()
    file = BytesIO()
    np.savez(file, data=array)
    keep(path, file.getvalue(), context.report)
    return array


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Whole or not at all: the archive carries a checksum of its content."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        array = archive["data"]
    if array.shape != shape:
        raise ValueError(f"shape {array.shape}, expected {shape}")
    return array


def images_fingerprint(options: GlyphsOptions, images: Catalogue) -> str:
    """Hex digest of everything that shapes the images."""
    digest = hashlib.blake2b(digest_size=16)
    drawn = options.model_dump_json(include={"image_seed", "distortion"})
    for part in (renderer(), fonts_digest(), drawn):
        digest.update(part.encode() + b"\0")
    for column in (images.kind, images.codes, images.face, images.k):
        digest.update(column.astype(np.int32).tobytes())
    return digest.hexdigest()


def load_images(options: GlyphsOptions, images: Catalogue, context: Context) -> np.ndarray:
    """[n, 28, 28] uint8, from the cache or drawn now."""
    name = f"images-{images_fingerprint(options, images)}"
    return cached(context, name, (len(images), SIZE, SIZE), lambda: draw(options, images, context))


def draw(options: GlyphsOptions, images: Catalogue, context: Context) -> np.ndarray:
    """[n, 28, 28] uint8: every image of the catalogue, drawn now."""
    drawn = np.empty((len(images), SIZE, SIZE), np.uint8)
    with context.progress("glyphs: drawing images (once)", len(images)) as advance:
        for number, kind in enumerate(KINDS):
            rows = np.flatnonzero(images.kind == number)
            for start in range(0, len(rows), _BLOCK):
                some = rows[start : start + _BLOCK]
                drawn[some] = render(
                    images.codes[some],
                    images.face[some],
                    images.k[some],
                    seed=derive(options.image_seed, "glyphs", kind),
                    distortion=getattr(options.distortion, kind),
                )
                advance(len(some))
    return drawn
