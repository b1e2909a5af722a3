"""The backbone ``glyph_conv``: images of letters to features."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

from metaforge.components import Context
from metaforge.image_files import ImageForm
from metaforge.network_backbone import NetworkBackbone
from metaforge.polarity import ink_is_one
from metaforge.seeding import generator
from metaforge_glyphs.options import SIZE, GlyphConvOptions

SHIPPED = Path(__file__).with_name("glyph_conv.safetensors")


class GlyphConv(NetworkBackbone):
    """phi: ``[n, 1, 28, 28]`` (or ``[n, 28, 28]``) in [0, 1], ink 1, to ``[n, width]``, not
    normalised.

    By ``invert: auto`` an image whose border is bright, as of dark ink on white paper, is
    inverted: each image by its own border. Raises ``DataError`` for weights of other shapes.
    """

    options: GlyphConvOptions
    images = ImageForm(1, SIZE, SIZE)

    def __init__(self, options: GlyphConvOptions, context: Context):
        super().__init__(options, context)
        self.width = options.width
        # Letters as they are drawn have a dark border, which auto leaves as it is.
        self.made_by = "" if options.invert == "auto" else f"invert {options.invert}"
        self.network = _network(options.channels, options.width)
        _draw(self.network, generator(context.seed, "glyph_conv"))
        if options.weights != "none":
            path = SHIPPED if options.weights == "shipped" else Path(options.weights)
            self._load(path, "glyph_conv", "set channels and width as in its pre-training")
        self.network.to(context.device)
        # Two to three times as fast on a CPU as the default layout; torch's stubs lack it.
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare(self, images: Tensor) -> Tensor:
        return ink_is_one(images.view(-1, 1, SIZE, SIZE), self.options.invert)


def _network(channels: tuple[int, int, int], width: int) -> nn.Sequential:
    """The layers with nothing in them yet, so that no random number is drawn."""
    with torch.device("meta"):
        layers: list[tuple[str, nn.Module]] = []
        for i, (before, after) in enumerate(zip((1, *channels), channels, strict=False)):
            # Pooling first: the normaliser and the relu then work on a quarter of the pixels.
            layers += [
                (f"conv{i}", nn.Conv2d(before, after, 3, padding=1, bias=False)),
                (f"pool{i}", nn.MaxPool2d(2)),
                (f"norm{i}", nn.BatchNorm2d(after)),
                (f"relu{i}", nn.ReLU()),
            ]
        side = SIZE // 2 ** len(channels)
        layers += [
            ("flatten", nn.Flatten()),
            ("affine", nn.Linear(channels[-1] * side * side, width)),
        ]
        return nn.Sequential(OrderedDict(layers))


@torch.no_grad()
def _draw(network: nn.Module, source: torch.Generator) -> None:
    """Weights and biases uniform in +-1/sqrt(fan in), PyTorch's own default; normalisers 1, 0."""
    network.to_empty(device="cpu")
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=source)
