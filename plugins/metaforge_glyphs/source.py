"""The task source ``glyphs``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.errors import DataError
from metaforge.pooled import PooledTasks
from metaforge.pretraining import LabelledImages
from metaforge_glyphs.catalogue import Catalogue, catalogue, pools
from metaforge_glyphs.fonts import LICENCE, SCRIPTS
from metaforge_glyphs.images import cached, images_fingerprint, load_images
from metaforge_glyphs.options import GlyphsOptions
from metaforge_glyphs.plan import KINDS, SPLITS, check

_BLOCK = 2048  # images a forward pass


def load(options: GlyphsOptions, context: Context, backbone: Backbone | None) -> GlyphTasks:
    """The tasks, drawn or read from the cache. Raises ``DataError`` as ``check`` finds."""
    if found := check(options, context):
        raise DataError("\n".join(f"glyphs: {line}" for line in found))
    images = catalogue(options)
    pixels = load_images(options, images, context)
    features = None if backbone is None else _features(options, images, pixels, backbone, context)
    return GlyphTasks(options, context, images, torch.from_numpy(pixels), features)


class GlyphTasks(PooledTasks):
    """Which letter is it, or which typeface: tasks over rendered letters.

    pixels    [n, 28, 28] uint8, one row for each of the catalogue's
    features  [n, p] or None
    """

    def __init__(
        self,
        options: GlyphsOptions,
        context: Context,
        images: Catalogue,
        pixels: Tensor,
        features: Tensor | None,
    ):
        shown = pixels[:, None] if features is None or options.input == "images" else features
        as_images = shown is not features
        super().__init__(
            shown,
            pools(options, images),
            options.sizes(),
            seed=context.seed,
            name="glyphs",
            features=features if as_images else None,
            scale=1 / 255 if as_images else None,
            group_by="pool",
            licence=LICENCE,
            device=context.device,
            dtype=getattr(torch, context.dtype),
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
        pixels[torch.from_numpy(rows)][:, None],
        {name: torch.from_numpy(values).long() for name, values in labels.items()},
        scale=1 / 255,
    )


def _features(
    options: GlyphsOptions,
    images: Catalogue,
    pixels: np.ndarray,
    backbone: Backbone,
    context: Context,
) -> Tensor:
    """[n, width]: phi of every image, from the cache or computed now."""

    def compute() -> np.ndarray:
        context.report(f"glyphs: computing features of {len(pixels):,} images (once)")
        blocks = torch.from_numpy(pixels).split(_BLOCK)
        scaled = (block[:, None].to(context.device, torch.float32) / 255 for block in blocks)
        return torch.cat([backbone.features(block).cpu() for block in scaled]).numpy()

    name = f"features-{images_fingerprint(options, images)[:16]}-{backbone.fingerprint[:16]}"
    values = torch.from_numpy(cached(context, name, (len(pixels), backbone.width), compute))
    if not torch.isfinite(values).all():
        raise DataError("glyphs: the backbone gives features that are not finite")
    return F.normalize(values, dim=-1) if options.normalize == "l2" else values
