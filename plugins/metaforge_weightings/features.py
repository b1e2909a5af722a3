"""Scores of a kernel matrix of low rank, solved in its feature space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

#: The rounding of float64: a stable solve moves alpha by no more than the condition number times
#: this, in shares of its length (Higham, Accuracy and Stability of Numerical Algorithms, 10.1).
EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class FeatureSolve:
    """``(F F^T + lambda I)^-1`` on the range of F [N, r], of any rank up to r.

    With the singular value decomposition ``F = U S V^T``, for v in that range,

        (F F^T + lambda I)^-1 v = U (S^2 + lambda)^-1 U^T v.

    v = F u is in the range up to rounding, which the inverse would multiply by
    1 / lambda outside of it; left out here, so that lambda = 1e-8 is as stable as 1.
    Costs O(N r^2).
    """

    left: Tensor
    singular: Tensor
    ridge: float
    jitter: float = 0.0

    @classmethod
    def of(cls, features: Tensor, ridge: float) -> FeatureSolve:
        left, singular, _ = torch.linalg.svd(features, full_matrices=False)
        floor = torch.finfo(features.dtype).eps * max(features.shape) * singular[0]
        kept = singular > floor
        return cls(left[:, kept], singular[kept], ridge)

    def solve(self, right: Tensor) -> Tensor:
        """O(N r) a target."""
        return self.weigh(self.left.T @ right)

    def weigh(self, coordinates: Tensor) -> Tensor:
        """``U (S^2 + lambda)^-1 c``, of c [r, T] in the basis U."""
        return self.left @ (coordinates / self.eigenvalues[:, None])

    @property
    def eigenvalues(self) -> Tensor:
        """Of ``F F^T + lambda I`` on the range of F, [r], by falling size."""
        return self.singular.square() + self.ridge

    @property
    def condition(self) -> float:
        """Of ``F F^T + lambda I`` in the 2-norm."""
        n_tasks, rank = self.left.shape
        eigenvalues = pad(self.singular.square(), (0, int(rank < n_tasks))) + self.ridge
        return float(eigenvalues.max() / eigenvalues.min())

    def report(self) -> Mapping[str, float]:
        on_range = self.eigenvalues.aminmax() if len(self.singular) else None
        error = EPSILON * float(on_range.max / on_range.min) if on_range else 0.0
        return {"jitter": self.jitter, "condition": self.condition, "error": error}
