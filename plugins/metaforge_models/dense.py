"""The affine models: ``linear`` and ``mlp``."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import nn

from metaforge.contracts import Model
from metaforge.tasks import TaskShape
from metaforge_models.initial import fresh
from metaforge_models.options import LinearOptions, MlpOptions


class Linear(Model):
    """``W vec(x) + b``: ``[n, *x] -> [n, outputs]``.

    On a fixed backbone's features this is the MAML baseline of the paper's table 1.
    """

    options: LinearOptions

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        return fresh(lambda: _chain(shape, (), bias=self.options.bias), generator)


class Mlp(Model):
    """``W_L relu(... relu(W_1 vec(x) + b_1) ...) + b_L``: ``[n, *x] -> [n, outputs]``."""

    options: MlpOptions

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        return fresh(lambda: _chain(shape, self.options.hidden, bias=True), generator)


def _chain(shape: TaskShape, hidden: tuple[int, ...], bias: bool) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if len(shape.input_shape) != 1:
        layers["flatten"] = nn.Flatten()
    widths = (math.prod(shape.input_shape), *hidden)
    for i, (width, after) in enumerate(pairwise(widths)):
        layers[f"hidden{i}"] = nn.Linear(width, after)
        layers[f"relu{i}"] = nn.ReLU()
    layers["output"] = nn.Linear(widths[-1], shape.outputs, bias=bias)
    return nn.Sequential(layers)
