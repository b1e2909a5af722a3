"""Fresh modules whose values come from a given generator alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn


def fresh(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """``make()`` with its layers drawn from the generator, global random state untouched.

    Affine and convolution layers: weight and bias uniform in +-1/sqrt(fan in), PyTorch's
    own default. Normalisers: scale 1, shift 0, running mean 0 and variance 1. On the CPU,
    float32.

    Raises ``TypeError`` for a layer that it does not know how to draw.
    """
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    for layer in module.modules():
        _draw(layer, generator)
    return module


@torch.no_grad()
def _draw(layer: nn.Module, generator: torch.Generator) -> None:
    own = dict(layer.named_parameters(recurse=False))
    if isinstance(layer, nn.Linear | nn.Conv2d):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        for parameter in own.values():
            parameter.uniform_(-bound, bound, generator=generator)
    elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d):
        layer.reset_parameters()  # of batch norm the running statistics as well
    elif own:
        raise TypeError(f"no initialisation known for {type(layer).__name__}")
