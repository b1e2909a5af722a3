"""Where signatures are points: inner products and distances, exact where it matters to a
kernel matrix. Symbols: n and m signatures of p numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from metaforge.errors import NumericError

#: Pairs nearer than this share of their squared norms are computed again.
NEAR = 1e-6
#: Numbers in a temporary of such a second computation.
_CHUNK = 1 << 22
#: Numbers of a block of distances, as many as a core's cache holds, and rows of it at least.
_BLOCK, _ROWS = 1 << 17, 256
#: Squared distances below this share of the squared norms are rounding: the points are equal.
_EQUAL = 1e-24


class Space(ABC):
    """A Hilbert space with signatures as points: what kernels of a distance or of an inner
    product ask of it. Column j of what ``inner`` and ``squared_distances`` give depends on a
    and on row j of b alone, to the bit."""

    @abstractmethod
    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """[n, m]: inner products of signatures a [n, p] and b [m, p]."""

    @abstractmethod
    def squared_norms(self, a: Tensor) -> Tensor:
        """[n]."""

    @abstractmethod
    def squared_distances(self, a: Tensor, b: Tensor) -> Tensor:
        """[n, m], none negative; equal signatures are at distance exactly 0."""

    def features(self, a: Tensor) -> Tensor | None:
        """[n, r] with ``inner(a, b) = F(a) F(b)^T`` where the space has few dimensions."""
        return None


class Euclidean(Space):
    """Signatures are vectors."""

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b.T

    def squared_norms(self, a: Tensor) -> Tensor:
        return a.square().sum(1)

    def squared_distances(self, a: Tensor, b: Tensor) -> Tensor:
        return squared_distances(a, b)

    def features(self, a: Tensor) -> Tensor:
        return a


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[n, m] squared Euclidean distances of the rows of a [n, p] and b [m, p].

    ``|a|^2 + |b|^2 - 2 <a, b>``, one matrix product, on rows centred at the mean of a (of
    b's rows, each is measured on its own). That loses digits where two rows almost
    coincide, so those pairs are computed again by subtraction: equal rows are at distance
    exactly 0, and no distance is negative.
    """
    centre = a.mean(0)
    b = b - centre
    right = b.square().sum(1)
    found = a.new_empty(len(a), len(b))
    rows = max(_ROWS, _BLOCK // max(1, a.shape[1], len(b)))
    for i in range(0, len(a), rows):
        some = a[i : i + rows] - centre
        found[i : i + rows] = _block_of_distances(some, some.square().sum(1), b, right)
    return found


def _block_of_distances(a: Tensor, left: Tensor, b: Tensor, right: Tensor) -> Tensor:
    """[n, m], of rows a and b with squared norms left [n] and right [m]."""
    norms = left[:, None] + right
    distances = torch.addmm(norms, a, b.T, alpha=-2)
    return recompute(
        distances,
        distances <= norms.mul_(NEAR),
        lambda i, j: (a[i] - b[j]).square().sum(1),
        size=a.shape[1],
    )


def recompute(
    values: Tensor, where: Tensor, exact: Callable[[Tensor, Tensor], Tensor], size: int
) -> Tensor:
    """``values`` [n, m], set to ``exact(i, j)`` at the places (i, j) that ``where`` marks.

    i and j are given as vectors; ``exact`` needs ``size`` numbers a place.
    """
    rows, columns = where.nonzero(as_tuple=True)
    chunk = max(1, _CHUNK // max(1, size))
    for i, j in zip(rows.split(chunk), columns.split(chunk), strict=True):
        values[i, j] = exact(i, j)
    return values


def median_squared_distance(signatures: Tensor, space: Space, kernel_name: str) -> float:
    """The median over pairs of distinct signatures, the usual width of a kernel.

    Pairs that are equal but for rounding do not count, so that a bank with repeated tasks has a
    width. A bank of one task needs none: 1.
    Raises ``NumericError`` where no two signatures differ.
    """
    n = len(signatures)
    if n == 1:
        return 1.0
    rows, columns = torch.triu_indices(n, n, offset=1, device=signatures.device)
    norms = space.squared_norms(signatures)
    pairs = space.squared_distances(signatures, signatures)[rows, columns]
    pairs = pairs[pairs > _EQUAL * (norms[rows] + norms[columns])]
    if not len(pairs):
        raise NumericError(
            f"task kernel {kernel_name!r}: bandwidth: median needs bank tasks that differ, but "
            f"the {n} signatures looked at are all equal; take other bank tasks, another "
            "embedding, or weighting: {use: uniform}"
        )
    return float(pairs.median())
