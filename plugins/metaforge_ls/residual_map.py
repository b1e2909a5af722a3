"""The feature map of the closed-form heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metaforge.contracts import Params

#: Below this an input is not brought to length 1.
_LEAST_LENGTH = 1e-12


def psi(x: Tensor, w0: Tensor, w1: Tensor) -> Tensor:
    """``psi(x) = x + W1^T relu(W0^T x)``: [n, p] -> [n, p], for w0 [p, h] and w1 [h, p].

    No biases, and the result is not normalised (the released program of Wang et al. 2020).
    """
    return torch.addmm(x, _hidden(x, w0), w1)


def psi_products(x: Tensor, w0: Tensor, w1: Tensor, heads: Tensor) -> Tensor:
    """[B, n, o]: products of psi(x), for x [B, n, p], with each task's rows ``heads`` [B, o, p].

        psi(x) . v = x . v + relu(W0^T x) . (W1 v)

    The second layer meets the o rows of a head and not the n samples, and psi(x) is never
    formed, nor its gradient: with o well under n, the work of the first layer is left.
    """
    hidden = _hidden(x.flatten(0, 1), w0).unflatten(0, x.shape[:2])
    pulled = (heads.flatten(0, 1) @ w1.mT).unflatten(0, heads.shape[:2])
    return torch.baddbmm(torch.bmm(x, heads.mT), hidden, pulled.mT)


def _hidden(x: Tensor, w0: Tensor) -> Tensor:
    return (x @ w0).relu_()


def draw(width: int, hidden: int, generator: torch.Generator, dtype: torch.dtype) -> Params:
    """Fresh ``w0`` [width, hidden] and ``w1`` [hidden, width], Glorot-uniform: in
    +-sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16)."""
    bound = math.sqrt(6 / (width + hidden))
    shapes = {"w0": (width, hidden), "w1": (hidden, width)}
    return {
        name: torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator)
        for name, shape in shapes.items()
    }


def normalize_(x: Tensor) -> Tensor:
    """Rows [*, p] divided by their Euclidean length; zeros stay zeros. Uses up the memory of x
    where autograd has no need of it: fresh memory costs more than the division."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=_LEAST_LENGTH)
    return x / length if x.requires_grad else x.div_(length)
