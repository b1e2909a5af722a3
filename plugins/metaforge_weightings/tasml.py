"""Structured prediction's scores: kernel ridge regression from tasks to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metaforge import factors
from metaforge.components import Context
from metaforge.contracts import GramOperator, TaskKernel, TaskWeighting
from metaforge.tasks import TaskKind
from metaforge_weightings import solvers
from metaforge_weightings.features import FeatureSolve
from metaforge_weightings.needs import BLOCKS, require
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.solvers import Solver


@dataclass(frozen=True, eq=False)
class State:
    solver: Solver
    ridge: float


class Tasml(TaskWeighting):
    """``alpha(D) = (K + lambda I)^-1 v(D)`` (paper, eq. 5).

    ``K_ij = k(D_i, D_j)`` over the N bank tasks, ``v(D)_i = k(D_i, D)``; the scores are
    as they come, signed, summing to anything. One factorisation a bank serves every target;
    a kernel of finite rank r is solved in its feature space, O(N r^2), without the N x N
    matrix, whatever the solver. Else ``solver`` says how, for m = ``rank`` landmarks and
    signatures of p numbers:

    ========  =============================  ==============  ============================
    solver    what it is                     bytes           operations, T targets
    ========  =============================  ==============  ============================
    exact     Cholesky in float64            8 N^2           N^3 / 3 + 2 N^2 T
    float32   Cholesky in float32, refined   4 N^2           N^3 / 3, N^2 (p + T) a round
    cg        conjugate gradients            24 N m          N m^2, N^2 (p + T) an iteration
    nystrom   an approximation of rank m     24 N m          N m^2 + 2 N m T
    ========  =============================  ==============  ============================

    ``float32`` and ``cg`` solve to a relative residual of 1e-8 in float64; N^2 p of a round is K
    computed again, which up to 256 targets share. Once fitted, nothing is factored again: T
    further targets cost the terms with T, N p T for v, and O(N T) memory.

    ``lambda`` is added to K as it stands (not multiplied by N); ``n^-1/2`` is
    ``N^(-1/2)``.

    Raises ``NumericError`` where K + lambda I is not positive definite even with jitter
    (``metaforge.linalg.factor``), or does not allow the solver its residual; ``DataError`` from
    ``require_memory`` and ``fit`` where the solver's memory is not there.
    """

    may_be_negative = True

    def __init__(self, options: TasmlOptions, context: Context | None = None):
        super().__init__(options, context)
        self.blocks = BLOCKS if options.solver in ("float32", "cg") else 1

    def require_memory(self, n_tasks: int, kernel: TaskKernel) -> None:
        factors.limit()  # refused here where the variable is no number
        if not kernel.finite_rank:
            rank = self.options.landmarks(n_tasks)
            device = torch.device(self.context.device)
            require(self.options.solver, n_tasks, rank, device, kernel.name)

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
        return State(self._solver(gram, ridge), ridge)

    def _solver(self, gram: GramOperator, ridge: float) -> Solver:
        rank, seed = self.options.landmarks(gram.n_tasks), self.context.seed
        match self.options.solver:
            case "float32":
                return solvers.single_precision(gram, ridge, self.context)
            case "cg":
                return solvers.preconditioned(gram, ridge, rank, seed)
            case "nystrom":
                return solvers.approximate(gram, ridge, rank, seed)
            case _:
                return solvers.exact(gram, ridge, self.context)

    def weights(self, state: State, cross: Tensor, self_: Tensor) -> Tensor:
        return state.solver.solve(cross)

    def report(self, state: State) -> Mapping[str, float]:
        """lambda, the jitter that was needed, the condition number of the system, the relative
        error of alpha that it allows; of float32 and cg the worst residual and most iterations of
        64 columns of K, of cg and nystrom the rank.

        Estimates have three digits: what is beyond differs with the load of the machine.
        """
        facts = {"lambda": state.ridge, **state.solver.report()}
        rounded = {name: float(f"{facts[name]:.3g}") for name in _ESTIMATES if name in facts}
        return {**facts, **rounded}


#: What ``report`` rounds.
_ESTIMATES = ("condition", "residual", "error")
