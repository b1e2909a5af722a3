"""One task's adapted predictor, as a module that stands alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metaforge_ls.residual_map import normalize_, psi


class AdaptedHead(nn.Module):
    """``psi(x) W + b``: raw inputs [n, *x] -> [n, outputs]. Its parameters are copies.

    w0 [p, h], w1 [h, p]   the feature map
    weight [p, o]          W(D), any scale taken in
    bias []                added to every output; None without
    """

    def __init__(
        self, w0: Tensor, w1: Tensor, weight: Tensor, bias: Tensor | None, *, normalize: bool
    ):
        super().__init__()
        self.w0, self.w1, self.weight = (_copy(value) for value in (w0, w1, weight))
        self.bias = None if bias is None else _copy(bias)
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.normalize:
            x = normalize_(x.clone())
        outputs = psi(x, self.w0, self.w1) @ self.weight
        return outputs if self.bias is None else outputs + self.bias

    def extra_repr(self) -> str:
        width, outputs = self.weight.shape
        return f"{width} features, {outputs} outputs, normalize={self.normalize}"


class AdaptedNetwork(nn.Module):
    """``body(x) W + b``: raw inputs [n, *x] -> [n, outputs]. Its parameters are copies.

    body           the network, to features [n, p]
    weight [p, o]  W(D), any scale taken in
    bias []        added to every output; None without
    """

    def __init__(self, body: nn.Module, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.body, self.weight = body, _copy(weight)
        self.bias = None if bias is None else _copy(bias)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.body(x).flatten(1) @ self.weight
        return outputs if self.bias is None else outputs + self.bias


def _copy(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(memory_format=torch.contiguous_format))
