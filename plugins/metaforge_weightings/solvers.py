"""The solvers of ``(K + lambda I) alpha = v`` that tasml chooses among.

Symbols: N bank tasks, m landmarks, T targets, p the width of a signature.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from metaforge import factors, linalg
from metaforge.components import Context
from metaforge.contracts import TARGET_BLOCK, GramOperator
from metaforge.errors import NumericError
from metaforge.iterative import (
    TOLERANCE,
    Solution,
    Steps,
    conjugate_gradients,
    refinement,
    together,
)
from metaforge.linalg import Factor
from metaforge_weightings.features import EPSILON
from metaforge_weightings.nystrom import Nystrom, Preconditioner

#: Rows of the small factorisation whose time tells that of a large one.
_TRIAL_ROWS = 2000


class Solver(Protocol):
    """What is kept of a bank."""

    def solve(self, cross: Tensor) -> Tensor:
        """alpha [N, T] of v(D) [N, T]."""

    def report(self) -> Mapping[str, float]:
        """What the run records of it."""


@dataclass(frozen=True, eq=False)
class Direct:
    """Cholesky in float64, O(N^3) once, O(N^2) a target."""

    factor: Factor

    def solve(self, cross: Tensor) -> Tensor:
        return self.factor.solve(cross)

    def report(self) -> Mapping[str, float]:
        condition = self.factor.condition
        return {"jitter": self.factor.jitter, "condition": condition, "error": condition * EPSILON}


@dataclass(eq=False)
class Iterative:
    """Columns solved to a relative residual of 1e-8 in float64, with K computed again, tile by
    tile, at every step: O(N^2 (p + T)) each.

    Before it serves, the columns of some bank tasks are solved, so that a bank that it cannot
    serve is known at once; that trial is what is reported, whatever targets come.
    """

    gram: GramOperator
    ridge: float
    method: Callable[[Tensor], Steps]
    facts: Mapping[str, float]
    #: The solver and what to do where it does not serve, for messages.
    name: str
    remedy: str
    trial: Solution = field(init=False)

    def __post_init__(self) -> None:
        n_tasks = self.gram.n_tasks
        count = min(TARGET_BLOCK, n_tasks)
        tasks = torch.arange(count, device=self.gram.signatures().device) * n_tasks // count
        (self.trial,) = self._solutions([self.gram.block(slice(None), tasks)])

    def solve(self, cross: Tensor) -> Tensor:
        """Raises ``NumericError`` where a column's residual stays above 1e-8."""
        return torch.cat([found.x for found in self._solutions(cross.split(TARGET_BLOCK, 1))], 1)

    def report(self) -> Mapping[str, float]:
        residual = float(self.trial.residual.max())
        return {
            **self.facts,
            "error": self.facts["condition"] * max(residual, EPSILON),
            "residual": residual,
            "iterations": int(self.trial.iterations.max()),
        }

    def _solutions(self, blocks: Sequence[Tensor]) -> list[Solution]:
        found = together([self.method(block.contiguous()) for block in blocks], self._products)
        converged = torch.cat([block.converged for block in found])
        if not bool(converged.all()):
            residual = torch.cat([block.residual for block in found])
            iterations = torch.cat([block.iterations for block in found])
            raise NumericError(
                f"task kernel {self.gram.kernel_name!r}: (K + lambda I) alpha = v on "
                f"{self.gram.n_tasks} bank tasks, lambda = {self.ridge:g}, by solver: {self.name} "
                f"came to a relative residual of {_worst(residual):.2g} in "
                f"{int(iterations.max())} iterations, and {TOLERANCE:g} is asked for "
                f"({int((~converged).sum())} of {len(converged)} right-hand sides; condition "
                f"number about {self.facts['condition']:.2g}); {self.remedy}"
            )
        return found

    def _products(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        products = self.gram.products(vectors)
        return [kv + self.ridge * v for kv, v in zip(products, vectors, strict=True)]


def exact(gram: GramOperator, ridge: float, context: Context) -> Solver:
    """Raises ``NumericError`` where no jitter makes the matrix positive definite."""

    def make() -> Factor:
        _announce(gram, torch.float64, context)
        return linalg.factor(gram.dense, ridge, gram.kernel_name)

    return Direct(factors.kept(gram, ridge, torch.float64, context, make))


def single_precision(gram: GramOperator, ridge: float, context: Context) -> Solver:
    """The factor in float32, half the memory, and refinement.

    Raises ``NumericError`` where the matrix is too ill-conditioned for float32: about 1e6.
    """
    remedy = "take weighting.solver: exact, or a larger weighting.lambda"
    if ridge > torch.finfo(torch.float32).max:
        raise NumericError(f"lambda = {ridge:g} is beyond float32: take weighting.solver: exact")

    def make() -> Factor:
        _announce(gram, torch.float32, context)
        matrix = gram.dense(torch.float32)
        found = linalg.attempt(matrix, ridge, gram.kernel_name)
        if found is None:
            bound = 1 + float(gram.diag().sum()) / ridge
            raise NumericError(
                f"task kernel {gram.kernel_name!r}: its matrix on {gram.n_tasks} bank tasks plus "
                f"lambda = {ridge:g} is not positive definite in float32, which serves condition "
                f"numbers up to about 1e6 (this one's is at most {bound:.2g}); {remedy}"
            )
        return found

    factor = factors.kept(gram, ridge, torch.float32, context, make)
    method = partial(refinement, correct=partial(_rough_solve, factor))
    facts = {"jitter": 0.0, "condition": factor.condition}
    return Iterative(gram, ridge, method, facts, "float32", remedy)


def _announce(gram: GramOperator, dtype: torch.dtype, context: Context) -> None:
    """Tell how long a large factorisation, one call that shows no progress, will take: by the
    time of a small one, whose cost goes with the cube of its rows."""
    if gram.n_tasks < factors.LEAST_TASKS or torch.device(context.device).type != "cpu":
        return
    some = slice(0, _TRIAL_ROWS)
    trial = gram.block(some, some).to(dtype)
    start = time.perf_counter()
    linalg.attempt(trial, float(trial.diagonal().sum()), gram.kernel_name)
    seconds = (time.perf_counter() - start) * (gram.n_tasks / _TRIAL_ROWS) ** 3
    context.report(
        f"scores: factoring the matrix of {gram.n_tasks:,} bank tasks, about {seconds:.0f} s"
    )


def _rough_solve(factor: Factor, residual: Tensor) -> Tensor:
    """Scaled by column, so that small residuals are numbers of float32 too."""
    size = residual.abs().amax(0).clamp(min=torch.finfo(torch.float64).tiny)
    return factor.solve((residual / size).float()).double() * size


def preconditioned(gram: GramOperator, ridge: float, count: int, seed: int) -> Solver:
    """Conjugate gradients with a Nystrom preconditioner of ``count`` landmarks.

    Raises ``NumericError`` where 1000 iterations are not enough.
    """
    precondition = Preconditioner.of(gram, ridge, count, seed)
    method = partial(conjugate_gradients, precondition=precondition)
    inner = precondition.inner
    facts = {**inner.report(), "rank": len(inner.singular)}
    remedy = "raise weighting.rank or weighting.lambda, or take weighting.solver: exact"
    return Iterative(gram, ridge, method, facts, "cg", remedy)


def approximate(gram: GramOperator, ridge: float, count: int, seed: int) -> Solver:
    return Nystrom.of(gram, ridge, count, seed)


def _worst(residual: Tensor) -> float:
    """The largest; one that is not a number is larger than all."""
    return float(residual.nan_to_num(nan=torch.inf).max())
