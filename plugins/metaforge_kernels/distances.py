"""Distances between signatures, exact where it matters to a kernel matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.errors import NumericError

#: Pairs nearer than this share of their squared norms are computed again by subtraction.
_NEAR = 1e-6
#: Numbers in a temporary of that second computation.
_CHUNK = 1 << 22


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[n, m] squared Euclidean distances of the rows of a [n, p] and b [m, p].

    ``|a|^2 + |b|^2 - 2 <a, b>``, one matrix product, on rows centred at the mean of a (of
    b's rows, each is measured on its own). That loses digits where two rows almost
    coincide, so those pairs are computed again by subtraction: equal rows are at distance
    exactly 0, and no distance is negative.
    """
    centre = a.mean(0)
    a, b = a - centre, b - centre
    norms = a.square().sum(1)[:, None] + b.square().sum(1)
    distances = torch.addmm(norms, a, b.T, alpha=-2)
    rows, columns = (distances <= _NEAR * norms).nonzero(as_tuple=True)
    chunk = max(1, _CHUNK // a.shape[1])
    for i, j in zip(rows.split(chunk), columns.split(chunk), strict=True):
        distances[i, j] = (a[i] - b[j]).square().sum(1)
    return distances


def median_squared_distance(signatures: Tensor, kernel_name: str) -> float:
    """The median over pairs of distinct signatures, the usual width of a kernel.

    Pairs at distance 0 do not count, so that a bank with repeated tasks has a width. A bank of
    one task needs none: 1.
    Raises ``NumericError`` where no two signatures differ.
    """
    n = len(signatures)
    if n == 1:
        return 1.0
    rows, columns = torch.triu_indices(n, n, offset=1, device=signatures.device)
    pairs = squared_distances(signatures, signatures)[rows, columns]
    pairs = pairs[pairs > 0]
    if not len(pairs):
        raise NumericError(
            f"task kernel {kernel_name!r}: bandwidth: median needs bank tasks that differ, but "
            f"the {n} signatures looked at are all equal; give sigma as a number, take more bank "
            "tasks, or another embedding"
        )
    return float(pairs.median())
