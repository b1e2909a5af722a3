"""Nystrom's approximation of a bank's kernel matrix from some of its tasks, and what it is of
use for: approximate scores, and a preconditioner of exact ones.

Symbols: N bank tasks, m landmarks, r <= m the rank of their own matrix, T targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metaforge import seeding
from metaforge.contracts import GramOperator
from metaforge.errors import NumericError
from metaforge.linalg import not_finite
from metaforge_weightings.features import FeatureSolve

#: Rows of K that are held at a time.
_ROWS = 4096


def landmarks(gram: GramOperator, count: int, seed: int) -> Tensor:
    """Numbers of ``count`` bank tasks [m], spread over the bank.

    Tasks are put in the order of their signatures along a random direction and taken from there
    at even distances, so that the choice depends on what is in the bank and not on its order.
    """
    signatures = gram.signatures()
    stream = seeding.generator(seed, "tasml/landmarks")
    direction = torch.randn(signatures.shape[1], generator=stream, dtype=torch.float64)
    order = torch.argsort(signatures @ direction.to(signatures.device), stable=True)
    places = (torch.arange(count, device=order.device) * len(order)) // count
    return order[places]


@dataclass(frozen=True, eq=False)
class Landmarks:
    """``f(D) = D_m^-1/2 V_m^T k_m(D)``, with ``K_mm = V D V^T`` without the part that is rounding:
    features [r] with ``<f(D), f(D')>`` near ``k(D, D')``, exact where D is a landmark
    (Williams and Seeger, NeurIPS 2000)."""

    tasks: Tensor
    whiten: Tensor

    @classmethod
    def of(cls, gram: GramOperator, count: int, seed: int) -> Landmarks:
        """Raises ``NumericError`` where the landmarks' kernel values are not finite or all 0."""
        tasks = landmarks(gram, count, seed)
        block = gram.block(tasks, tasks)
        if not bool(torch.isfinite(block).all()):
            raise NumericError(not_finite(gram.kernel_name))
        values, vectors = torch.linalg.eigh((block + block.T) / 2)
        kept = values > torch.finfo(values.dtype).eps * len(values) * values[-1]
        if not bool(kept.any()):
            raise NumericError(
                f"task kernel {gram.kernel_name!r}: its matrix of {count} landmarks has no "
                "positive eigenvalue; take another kernel, or look for features that are all zero"
            )
        return cls(tasks, vectors[:, kept] / values[kept].sqrt())

    def features(self, gram: GramOperator) -> Tensor:
        """F [N, r] of the bank."""
        found = self.whiten.new_empty(gram.n_tasks, self.whiten.shape[1])
        for start in range(0, gram.n_tasks, _ROWS):
            rows = slice(start, start + _ROWS)
            torch.matmul(gram.block(rows, self.tasks), self.whiten, out=found[rows])
        return found


@dataclass(frozen=True, eq=False)
class Nystrom:
    """Scores of the kernel ``<f(D), f(D')>`` in the place of k: an approximation.

    ``alpha(D) = F (F^T F + lambda I)^-1 f(D)``; O(N m^2) once, O(N m) a target, of whose kernel
    values the m at the landmarks count. With every bank task a landmark it is exact.
    """

    landmarks: Landmarks
    inner: FeatureSolve
    #: ``U^T F`` [r, r]: a target's features in the basis of ``inner``.
    turn: Tensor

    @classmethod
    def of(cls, gram: GramOperator, ridge: float, count: int, seed: int) -> Nystrom:
        chosen = Landmarks.of(gram, count, seed)
        features = chosen.features(gram)
        inner = FeatureSolve.of(features, ridge)
        return cls(chosen, inner, inner.left.T @ features)

    def solve(self, cross: Tensor) -> Tensor:
        seen = self.landmarks.whiten.T @ cross[self.landmarks.tasks]
        return self.inner.weigh(self.turn @ seen)

    def report(self) -> Mapping[str, float]:
        return {**self.inner.report(), "rank": len(self.inner.singular)}


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """``P^-1``, P near ``K + lambda I``: the approximation of rank r where it reaches, the size of
    its least eigenvalue beyond (Frangella, Tropp and Udell, SIAM J. Matrix Anal. Appl. 2023).

        P^-1 v = v + U ((s_r^2 + lambda) / (S^2 + lambda) - 1) U^T v,  F = U S V^T
    """

    inner: FeatureSolve

    @classmethod
    def of(cls, gram: GramOperator, ridge: float, count: int, seed: int) -> Preconditioner:
        features = Landmarks.of(gram, count, seed).features(gram)
        return cls(FeatureSolve.of(features, ridge))

    def __call__(self, right: Tensor) -> Tensor:
        left, eigenvalues = self.inner.left, self.inner.eigenvalues
        change = eigenvalues[-1] / eigenvalues - 1
        return right + left @ (change[:, None] * (left.T @ right))
