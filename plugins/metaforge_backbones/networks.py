"""The backbones ``conv4`` and ``resnet12``: the models' networks up to their heads, with batch
normalisation by running statistics."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

from metaforge.components import Context
from metaforge.image_files import ImageForm
from metaforge.network_backbone import NetworkBackbone
from metaforge.seeding import generator
from metaforge_backbones.options import Conv4Options, NetworkOptions, ResNet12Options
from metaforge_models.conv import conv4_body, resnet12_body
from metaforge_models.initial import fresh


class _Trained(NetworkBackbone):
    """What the two share: drawn by the context's seed, then filled from the file of weights."""

    name: str
    advice: str

    def __init__(self, options: NetworkOptions, context: Context, size: int):
        super().__init__(options, context)
        self.images = ImageForm(options.channels, size, size)
        source = generator(context.seed, "backbone", self.name)
        self.network = fresh(lambda: nn.Sequential(self._layers()), source)
        if options.weights != "none":
            self._load(Path(options.weights), self.name, self.advice)
        self.network.to(context.device)
        # Half as fast again on a CPU as the default layout; torch's stubs lack it.
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _layers(self) -> OrderedDict[str, nn.Module]:
        raise NotImplementedError


class Conv4(_Trained):
    """phi: ``[n, c, size, size]`` in [0, 1] to ``[n, filters (size // 16)^2]``, not normalised.

    The network of Vinyals et al. (2016, section 4.1) up to its head. Raises ``DataError`` for
    weights of other shapes, or trained on images of another form.
    """

    name, advice = "conv4", "set size, channels and filters as in its pre-training"
    options: Conv4Options

    def __init__(self, options: Conv4Options, context: Context):
        super().__init__(options, context, options.size)
        self.width = options.filters * (options.size // 16) ** 2

    def _layers(self) -> OrderedDict[str, nn.Module]:
        return conv4_body(self.options.channels, self.options.filters, "running")


class ResNet12(_Trained):
    """phi: ``[n, c, size, size]`` in [0, 1] to ``[n, widths[-1]]``, not normalised.

    The network of Lee et al. (2019, section 4.2) up to its head, without its dropout. Raises
    ``DataError`` for weights of other shapes, or trained on images of another form, and for
    images too small to be halved in each block.
    """

    name, advice = "resnet12", "set size, channels and widths as in its pre-training"
    options: ResNet12Options

    def __init__(self, options: ResNet12Options, context: Context):
        super().__init__(options, context, options.size)
        self.width = options.widths[-1]

    def _layers(self) -> OrderedDict[str, nn.Module]:
        return resnet12_body(self.options.channels, self.options.widths, "running")
