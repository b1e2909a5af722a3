"""The backbone ``pixels``."""

from __future__ import annotations

from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.image_files import ImageForm
from metaforge_backbones.options import PixelsOptions


class Pixels(Backbone):
    """vec(x): images ``[n, c, size, size]`` to ``[n, c * size * size]``, numbers in [0, 1]."""

    def __init__(self, options: PixelsOptions, context: Context):
        super().__init__(options, context)
        self.images = ImageForm(options.channels, options.size, options.size)
        self.width = options.channels * options.size**2
        self.fingerprint = "pixels " + " x ".join(map(str, self.images.shape))

    def features(self, images: Tensor) -> Tensor:
        return images.detach().flatten(1)
