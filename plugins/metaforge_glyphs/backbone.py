"""The backbone ``glyph_conv``: images of letters to features."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.errors import DataError
from metaforge.records import load_tensors, save_tensors
from metaforge.seeding import generator
from metaforge_glyphs.options import SIZE, GlyphConvOptions

SHIPPED = Path(__file__).with_name("glyph_conv.safetensors")


class GlyphConv(Backbone):
    """phi: ``[n, 1, 28, 28]`` (or ``[n, 28, 28]``) in [0, 1] to ``[n, width]``, not normalised.

    ``network`` is the module itself, for ``metaforge.pretraining``; ``features`` uses it in
    evaluation mode, so that a feature depends on its own image alone. Raises ``DataError``
    for weights of other shapes.
    """

    def __init__(self, options: GlyphConvOptions, context: Context):
        super().__init__(options, context)
        self.width = options.width
        self.network = _network(options.channels, options.width)
        _draw(self.network, generator(context.seed, "glyph_conv"))
        if options.weights != "none":
            path = SHIPPED if options.weights == "shipped" else Path(options.weights)
            _load(self.network, path)
        self.network.to(context.device)
        # Two to three times as fast on a CPU as the default layout; torch's stubs lack it.
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Hex digest of the weights, whatever they came from."""
        digest = hashlib.blake2b(digest_size=16)
        for name, value in self.network.state_dict().items():
            digest.update(f"{name} {tuple(value.shape)} ".encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        self.network.eval()
        return self.network(images.view(-1, 1, SIZE, SIZE))

    def save(self, path: Path, metadata: Any = None) -> None:
        """Write the weights as safetensors, for the option ``weights``."""
        save_tensors(path, self.network.state_dict(), metadata)


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


def _load(network: nn.Module, path: Path) -> None:
    if not path.is_file():
        raise DataError(f"glyph_conv: {path} is missing; `metaforge pretrain` makes weights")
    given, _ = load_tensors(path)
    expected = network.state_dict()
    shapes = {name: tuple(value.shape) for name, value in given.items()}
    wanted = {name: tuple(value.shape) for name, value in expected.items()}
    if shapes != wanted:
        name = next(key for key in {**wanted, **shapes} if shapes.get(key) != wanted.get(key))
        raise DataError(
            f"glyph_conv: {path}: {name} is {shapes.get(name, 'missing')}, expected "
            f"{wanted.get(name, 'nothing')}; set channels and width as in its pre-training"
        )
    network.load_state_dict(given)
