"""Scores of 100 targets: one factorisation of the bank's kernel matrix and a solve.

The floor is LAPACK's own dpotrf and dpotrs on the same matrix. Beside it, ``tasml`` does the
jitter policy, the check for numbers that are not finite and the condition estimate. ``exact``
builds the matrix too, and so do the other solvers, tile by tile; the last entry is a linear
kernel, solved in its feature space. The note says how near the solvers' scores are to exact ones:
the largest relative error of a target's, and the mean share of its top 1 % in common.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from benchmarks.harness import Row, compare
from metaforge.gram import KernelGram
from metaforge.scoring import agreement
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.linear import Linear
from metaforge_kernels.options import GaussianOptions, LinearOptions
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import Tasml

CPU_ONLY = True
#: lambda of the floor and of what is beside it; the other solvers have the theorem's, as float32
#: does not serve the smallest.
RIDGE, THEOREMS = 1e-8, "n^-1/2"
TARGETS, WIDTH, LINEAR_WIDTH = 100, 640, 64
_WIDTHS = f"signatures of {WIDTH} columns, {LINEAR_WIDTH} for the linear kernel"
SOLVERS = ("float32", "cg", "nystrom")
#: Banks and rounds; of the larger ones, which ``--full`` adds, there is one matrix alone, and
#: LAPACK's own factorisation does not serve some of them (``metaforge.linalg``).
SIZES, LARGE = ((2000, 15), (5000, 7), (10_000, 3)), ((20_000, 2), (30_000, 2))


class GivenGram(KernelGram):
    """A kernel matrix made beforehand, copied into the same memory at every call."""

    def __init__(self, gram: KernelGram):
        super().__init__(gram.kernel, gram.signatures())
        self.matrix = gram.dense()
        self.buffer = torch.empty_like(self.matrix)

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return self.buffer.copy_(self.matrix)


def rows() -> Iterator[Row]:
    os.environ["METAFORGE_FACTORS"] = "0"  # a factor that is there already takes no time
    return (_row(n, rounds) for n, rounds in SIZES)


def full_rows() -> Iterator[Row]:
    yield from rows()
    yield from (_large_row(n, rounds) for n, rounds in LARGE)


def _row(n: int, rounds: int) -> Row:
    gram, cross = _case(n)
    given = GivenGram(gram)
    linear = KernelGram(Linear(LinearOptions()), _signatures(n, LINEAR_WIDTH, seed=0))
    linear_cross = linear.kernel.gram(linear.signatures(), _signatures(TARGETS, LINEAR_WIDTH, 1))
    return compare(
        f"scores of {TARGETS} targets, N = {n}",
        {
            "dpotrf + dpotrs": lambda: _bare(given, cross),
            "tasml, K given": _scores(given, cross),
            **_solvers(gram, cross),
            "tasml, linear kernel": _scores(linear, linear_cross),
        },
        peer="dpotrf + dpotrs",
        target={"tasml, K given": 1 / 1.3},
        note=_note(gram, cross),
        rounds=rounds,
    )


def _large_row(n: int, rounds: int) -> Row:
    gram, cross = _case(n)
    entries = _solvers(gram, cross)
    name = f"scores of {TARGETS} targets, N = {n}"
    return compare(name, entries, peer="tasml, exact", note=_WIDTHS, rounds=rounds, memory=True)


def _case(n: int) -> tuple[KernelGram, Tensor]:
    gram = KernelGram(Gaussian(GaussianOptions(gamma=50.0)), _signatures(n, WIDTH, seed=0))
    return gram, gram.kernel.gram(gram.signatures(), _signatures(TARGETS, WIDTH, seed=1))


def _signatures(n: int, width: int, seed: int) -> Tensor:
    """Means of 25 samples, L2-normalised, around one of 20 centres."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.rand(20, width, generator=torch.Generator().manual_seed(9))
    kinds = torch.randint(20, (n,), generator=random)
    rows = centres[kinds] + torch.rand(n, width, generator=random) / 5
    return torch.nn.functional.normalize(rows.double(), dim=1)


def _bare(given: GivenGram, cross: Tensor) -> np.ndarray:
    matrix = given.dense()
    matrix.diagonal().add_(RIDGE)
    lower, _ = lapack.dpotrf(matrix.numpy().T, lower=1, clean=0, overwrite_a=1)
    solution, _ = lapack.dpotrs(lower, cross.numpy(), lower=1)
    return solution


def _solvers(gram: KernelGram, cross: Tensor) -> dict[str, Callable[[], Tensor]]:
    return {f"tasml, {s}": _scores(gram, cross, s, THEOREMS) for s in ("exact", *SOLVERS)}


def _note(gram: KernelGram, cross: Tensor) -> str:
    exact, near = _scores(gram, cross, "exact", THEOREMS)(), []
    for solver in SOLVERS:
        found = agreement(exact, _scores(gram, cross, solver, THEOREMS)(), gram.n_tasks // 100)
        overlap = 100 * float(found.overlap.mean())
        near.append(f"{solver} {float(found.error.max()):.1e}, {overlap:.1f} % in common")
    return f"{_WIDTHS}; off the exact scores: {'; '.join(near)}"


def _scores(
    gram: KernelGram, cross: Tensor, solver: str = "exact", ridge: float | str = RIDGE
) -> Callable[[], Tensor]:
    weighting = Tasml(TasmlOptions.model_validate({"lambda": ridge, "solver": solver}))
    groups = torch.full((gram.n_tasks,), -1)

    def call() -> Tensor:
        return weighting.weights(weighting.fit(gram, groups), cross, cross[0])

    return call
