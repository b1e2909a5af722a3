"""Ridge regression of all tasks of a batch at once, in its dual form.

For a task's support features X [S, p] and targets Y [S, o] the weights are

    W = X^T A,   A = (X X^T + ridge I)^-1 Y

so a query x is answered by x W = (x X^T) A: the p x p system of the primal form never
appears, and both products come from one Gram matrix of all rows with the support.
A padding row of zeros with zero targets gets a coefficient of zero and changes nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def support_gram(rows: Tensor, n_support: int) -> Tensor:
    """[B, n, S]: inner products of a task's rows [B, n, p] with its first S = ``n_support``."""
    return _SupportGram.apply(rows, n_support)


class _SupportGram(torch.autograd.Function):
    """``rows @ rows[:, :S]^T``, whose backward pass writes the gradient of the rows once.

    Autograd's own would pad the support's part to all rows and add: two more passes over the
    largest arrays of a step.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, n_support: int) -> Tensor:
        return torch.bmm(rows, rows[:, :n_support].mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        rows, ctx.n_support = inputs
        ctx.save_for_backward(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        (rows,) = ctx.saved_tensors
        found = torch.bmm(gradient, rows[:, : ctx.n_support])
        found[:, : ctx.n_support] += torch.bmm(gradient.mT, rows)
        return found, None


def dual_coefficients(gram: Tensor, y: Tensor, ridge: float | Tensor) -> Tensor:
    """A [B, S, o] of the module's formula, for gram = X X^T [B, S, S] and y [B, S, o].

    By batched Cholesky factorisation. A task whose system is not positive definite in the
    precision at hand gets NaN, as nothing is read back from the device here.
    """
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    lower, failed = torch.linalg.cholesky_ex(gram + ridge * identity)
    lower = lower.masked_fill((failed != 0)[:, None, None], math.nan)
    return torch.cholesky_solve(y, lower)
