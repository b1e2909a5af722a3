"""A module with its normalisers written out, so that vmap differentiates them rightly.

PyTorch's own layer normalisation is a single operator, whose second derivative is wrong under
``torch.func.vmap``, silently; group normalisation was seen right on a CPU, by a path of its own
that nothing promises. As chains of means, products and roots both are right.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def written_out(module: nn.Module) -> nn.Module:
    """A copy that computes the same, parameter for parameter of the same name."""
    made = copy.deepcopy(module)
    for name, layer in list(made.named_modules()):
        kind = _WRITTEN.get(type(layer))
        if kind is None or not name or layer._forward_hooks or layer._forward_pre_hooks:
            continue
        parent, _, own = name.rpartition(".")
        setattr(made.get_submodule(parent), own, kind(layer))
    return made


class _Normaliser(nn.Module):
    """(x - mean) / sqrt(variance + eps), then scaled and shifted."""

    def __init__(self, given: nn.GroupNorm | nn.LayerNorm):
        super().__init__()
        self.weight, self.bias, self.eps = given.weight, given.bias, given.eps
        self.train(given.training)

    def normal(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        centred = x - x.mean(dims, keepdim=True)
        variance = centred.square().mean(dims, keepdim=True)
        return centred * torch.rsqrt(variance + self.eps)

    def affine(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self.weight is not None:
            x = x * self.weight.view(shape)
        return x if self.bias is None else x + self.bias.view(shape)


class _GroupNorm(_Normaliser):
    """Over the pixels of each group of channels of each sample: [n, c, *]."""

    def __init__(self, given: nn.GroupNorm):
        super().__init__(given)
        self.groups = given.num_groups

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.reshape(len(x), self.groups, -1)
        return self.affine(self.normal(grouped, (2,)).view(x.shape), (-1, *[1] * (x.ndim - 2)))


class _LayerNorm(_Normaliser):
    """Over the last axes: [*, w]."""

    def __init__(self, given: nn.LayerNorm):
        super().__init__(given)
        self.shape = tuple(given.normalized_shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.affine(self.normal(x, tuple(range(-len(self.shape), 0))), self.shape)


_WRITTEN: dict[type[nn.Module], type[_Normaliser]] = {
    nn.GroupNorm: _GroupNorm,
    nn.LayerNorm: _LayerNorm,
}
