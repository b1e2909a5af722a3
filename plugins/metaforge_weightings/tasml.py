"""Structured prediction's scores: kernel ridge regression from tasks to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from metaforge.contracts import GramOperator, TaskWeighting
from metaforge.linalg import Factor, factor
from metaforge.tasks import TaskKind
from metaforge_weightings.options import TasmlOptions


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
        scale = self.singular.square() + self.ridge
        return self.left @ ((self.left.T @ right) / scale[:, None])

    @property
    def condition(self) -> float:
        """Of ``F F^T + lambda I`` in the 2-norm."""
        n_tasks, rank = self.left.shape
        eigenvalues = pad(self.singular.square(), (0, int(rank < n_tasks))) + self.ridge
        return float(eigenvalues.max() / eigenvalues.min())


@dataclass(frozen=True, eq=False)
class State:
    solver: Factor | FeatureSolve
    ridge: float


class Tasml(TaskWeighting):
    """``alpha(D) = (K + lambda I)^-1 v(D)`` (paper, eq. 5).

    ``K_ij = k(D_i, D_j)`` over the N bank tasks, ``v(D)_i = k(D_i, D)``; the scores are
    as they come, signed, summing to anything. One factorisation a bank, O(N^3), serves
    every target, O(N^2) each; a kernel of finite rank r is solved in its feature space,
    O(N r^2), without the N x N matrix.

    ``lambda`` is added to K as it stands (not multiplied by N); ``n^-1/2`` is
    ``N^(-1/2)``.

    Raises ``NumericError`` where K + lambda I is not positive definite even with jitter
    (``metaforge.linalg.factor``).
    """

    may_be_negative = True

    def fit(
        self, gram: GramOperator | None, groups: Tensor, *, kind: TaskKind = "classification"
    ) -> State:
        assert gram is not None
        options: TasmlOptions = self.options
        assert options.lambda_ != "validate"  # a run has chosen a value by now
        ridge = gram.n_tasks**-0.5 if options.lambda_ == "n^-1/2" else options.lambda_
        features = gram.features()
        if features is not None:
            return State(FeatureSolve.of(features, ridge), ridge)
        return State(factor(gram.dense, ridge, gram.kernel_name), ridge)

    def weights(self, state: State, cross: Tensor, self_: Tensor) -> Tensor:
        return state.solver.solve(cross)

    def report(self, state: State) -> Mapping[str, float]:
        """lambda, the jitter that was needed and the condition number of the system."""
        solver = state.solver
        return {"lambda": state.ridge, "jitter": solver.jitter, "condition": solver.condition}
