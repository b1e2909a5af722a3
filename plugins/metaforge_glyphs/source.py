"""The task source ``glyphs``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embedding import Views, views
from metaforge.errors import DataError
from metaforge.labelled_images import LabelledImages
from metaforge.pooled import PooledTasks
from metaforge_glyphs.catalogue import Catalogue, catalogue, pools
from metaforge_glyphs.fonts import FACES, LICENCE, SCRIPTS
from metaforge_glyphs.images import images_fingerprint, load_images
from metaforge_glyphs.options import GlyphsOptions
from metaforge_glyphs.plan import KINDS, SPLITS, check


def load(options: GlyphsOptions, context: Context, backbone: Backbone | None) -> GlyphTasks:
    """The tasks, drawn or read from the cache. Raises ``DataError`` as ``check`` finds."""
    if found := check(options, context):
        raise DataError("\n".join(f"glyphs: {line}" for line in found))
    images = catalogue(options)
    pixels = torch.from_numpy(load_images(options, images, context))[:, None]
    digest = images_fingerprint(options, images)
    seen = views(pixels, digest, backbone, options, context)
    return GlyphTasks(options, context, images, pixels, seen)


class GlyphTasks(PooledTasks):
    """Which letter is it, or which typeface: tasks over rendered letters.

    pixels  [n, 1, 28, 28] uint8, one row for each of the catalogue's
    seen    they, or their features, as the inner algorithm and kernels see them
    """

    def __init__(
        self,
        options: GlyphsOptions,
        context: Context,
        images: Catalogue,
        pixels: Tensor,
        seen: Views,
    ):
        super().__init__(
            seen.x,
            pools(options, images),
            options.sizes(),
            seed=context.seed,
            name="glyphs",
            features=seen.features,
            scale=seen.scale,
            group_by="pool",
            licence=LICENCE,
            device=context.device,
            dtype=getattr(torch, context.dtype),
            images=pixels,
            preprocess=seen.preprocess,
        )
        self.images = images
        self._pixels = pixels

    def summary(self) -> dict[str, Any]:
        told = super().summary()
        for split in SPLITS:
            scripts = [name for name, own in SCRIPTS.items() if own == split]
            told[split] = f"{told[split]} ({', '.join(scripts)})"
        return told

    def labelled_images(self, split: str) -> LabelledImages:
        """A split's images for pre-training: see ``labelled``."""
        return labelled(self.images, self._pixels, split)


def labelled(images: Catalogue, pixels: Tensor, split: str) -> LabelledImages:
    """A split's images with their ``letter``, ``face`` and ``print`` (1 fair, 0 a bad scan).

    The face is told of fair prints alone: a bad scan hides slant and weight.
    """
    rows = np.concatenate([images.rows(kind, split) for kind in KINDS])
    fair = images.kind[rows] == KINDS.index("typefaces")
    labels = {
        "letter": images.letter[rows],
        "face": np.where(fair, images.face[rows], -1),
        "print": fair.astype(np.int64),
    }
    return LabelledImages(
        pixels[torch.from_numpy(rows)],
        {name: torch.from_numpy(values).long() for name, values in labels.items()},
        scale=1 / 255,
        names={
            "letter": [letter.name for letter in images.letters],
            "face": [face.name for face in FACES],
            "print": ("bad scan", "fair"),
        },
    )
