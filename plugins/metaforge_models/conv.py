"""The convolutional models: ``conv4`` and ``resnet12``."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaforge.contracts import Model
from metaforge.errors import DataError
from metaforge.tasks import TaskShape
from metaforge_models.initial import fresh
from metaforge_models.options import Conv4Options, ConvolutionalOptions, ResNet12Options

#: ``running``: batch norm that keeps running statistics, for networks that are trained once.
Norm = Literal["layer", "batch", "running"]


class _Convolutional(Model):
    """What the two share: images in, and the normaliser's declaration."""

    options: ConvolutionalOptions

    @property
    def transductive(self) -> bool:  # type: ignore[override]
        return self.options.norm == "batch"

    def _image(self, shape: TaskShape) -> tuple[int, int, int]:
        """(channels, height, width), large enough to be halved so often."""
        if message := self.options.unfit_inputs(shape.input_shape):
            raise DataError(message)
        channels, height, width = shape.input_shape
        return channels, height, width


class Conv4(_Convolutional):
    """Four blocks of 3x3 convolution, normaliser, relu, 2x2 max pooling; a linear head.

    ``[n, c, height, width] -> [n, outputs]``; the head sees
    ``filters * (height // 16) * (width // 16)`` features. The network of Vinyals et al.
    (2016, section 4.1) and of MAML (Finn et al. 2017), which have ``norm: batch``.

    Raises ``DataError`` for inputs that are not images of at least 16 x 16.
    """

    options: Conv4Options

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        channels, height, width = self._image(shape)
        norm, filters = self.options.norm, self.options.filters

        def make() -> nn.Module:
            layers = conv4_body(channels, filters, norm)
            layers["output"] = nn.Linear(filters * (height // 16) * (width // 16), shape.outputs)
            return nn.Sequential(layers)

        return fresh(make, generator)


class ResNet12(_Convolutional):
    """Residual blocks of three 3x3 convolutions, 2x2 max pooling each; mean; a linear head.

    ``[n, c, height, width] -> [n, outputs]``. The network of Lee et al. (2019, section 4.2)
    without its dropout, which would need noise of its own; they have ``norm: batch``.

    Raises ``DataError`` for inputs that are not images, or too small to be halved in each block.
    """

    options: ResNet12Options

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        widths, norm = self.options.widths, self.options.norm
        channels, _, _ = self._image(shape)

        def make() -> nn.Module:
            layers = resnet12_body(channels, widths, norm)
            layers["output"] = nn.Linear(widths[-1], shape.outputs)
            return nn.Sequential(layers)

        return fresh(make, generator)


def conv4_body(channels: int, filters: int, norm: Norm) -> OrderedDict[str, nn.Module]:
    """``conv4`` up to its head: [n, channels, height, width] to
    [n, filters (height // 16) (width // 16)]."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, inputs in enumerate((channels, filters, filters, filters)):
        layers[f"conv{i}"] = _convolution(inputs, filters, norm)
        layers[f"norm{i}"] = _normaliser(filters, norm)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    return layers


def resnet12_body(
    channels: int, widths: tuple[int, ...], norm: Norm
) -> OrderedDict[str, nn.Module]:
    """``resnet12`` up to its head: [n, channels, height, width] to [n, widths[-1]]."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (inputs, outputs) in enumerate(pairwise((channels, *widths))):
        layers[f"block{i}"] = _ResidualBlock(inputs, outputs, norm)
    layers["mean"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    return layers


class _ResidualBlock(nn.Module):
    """``[n, inputs, height, width] -> [n, outputs, height // 2, width // 2]``."""

    def __init__(self, inputs: int, outputs: int, norm: Norm):
        super().__init__()
        self.convs = nn.ModuleList(
            _convolution(width, outputs, norm) for width in (inputs, outputs, outputs)
        )
        self.norms = nn.ModuleList(_normaliser(outputs, norm) for _ in range(3))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.shortcut_norm = _normaliser(outputs, norm)

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if i < 2:
                out = F.leaky_relu(out, 0.1)
        out = out + self.shortcut_norm(self.shortcut(x))
        return F.max_pool2d(F.leaky_relu(out, 0.1), 2)


def _convolution(inputs: int, outputs: int, norm: Norm) -> nn.Conv2d:
    """3x3, same size. Batch norm takes away any shift of a channel, so a bias would be dead."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=norm == "layer")


def _normaliser(channels: int, norm: Norm) -> nn.Module:
    if norm == "layer":
        return nn.GroupNorm(1, channels)
    return nn.BatchNorm2d(channels, track_running_stats=norm == "running")
