"""The images of a catalogue: drawn once, kept in the cache folder."""

from __future__ import annotations

import hashlib

import numpy as np

from metaforge.cached_arrays import cached_array
from metaforge.components import Context
from metaforge.seeding import derive
from metaforge_glyphs.catalogue import Catalogue
from metaforge_glyphs.fonts import fonts_digest
from metaforge_glyphs.options import SIZE, GlyphsOptions
from metaforge_glyphs.plan import KINDS
from metaforge_glyphs.render import render, renderer

#: Images drawn between two steps of progress.
_BLOCK = 2560


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
    path = context.cache_dir / "glyphs" / f"images-{images_fingerprint(options, images)}.npz"
    return cached_array(
        path,
        (len(images), SIZE, SIZE),
        lambda: draw(options, images, context),
        context.report,
    )


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
