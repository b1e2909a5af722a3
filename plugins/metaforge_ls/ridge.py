"""Ridge regression of all tasks of a batch at once, in its dual form."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def ridge_weights(x: Tensor, y: Tensor, ridge: float | Tensor) -> Tensor:
    """[B, o, p]: each task's weights W, transposed, to predict y [B, S, o] from x [B, S, p].

        W = X^T (X X^T + ridge I)^-1 Y = argmin_W |X W - Y|^2 + ridge |W|^2

    By a batched Cholesky factorisation of the S x S systems; the p x p system of the primal
    form never appears. A padding row of zeros, in x and y, changes nothing. A task whose
    system is not positive definite in the precision at hand gets NaN, as nothing is read
    back from the device here.
    """
    gram = torch.bmm(x, x.mT)
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    lower, failed = torch.linalg.cholesky_ex(gram + ridge * identity)
    lower = lower.masked_fill((failed != 0)[:, None, None], math.nan)
    return torch.bmm(torch.cholesky_solve(y, lower).mT, x)
