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

from benchmarks.harness import Row, compare, here, once
from metaforge.gram import KernelGram
from metaforge.scoring import agreement
from metaforge.threads import every_core
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
_SETTING = (
    f"signatures of {WIDTH} columns, {LINEAR_WIDTH} for the linear kernel; gaussian, gamma = 50; "
    f"lambda = {THEOREMS}, of LAPACK and of K given {RIDGE:g}; 1000 landmarks"
)
SOLVERS = ("exact", "float32", "cg", "nystrom")
#: Banks and rounds; the larger ones are those that ``--full`` adds.
SIZES, LARGE = ((2000, 7), (5000, 3), (10_000, 1)), (20_000, 30_000)
#: A bank of 30,000 has to fit beside what else a small machine does.
MOST = 9 * 10**9


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
    yield from map(_large_row, LARGE)


def _row(n: int, rounds: int) -> Row:
    gram, cross = _case(n)
    given = GivenGram(gram)
    linear = KernelGram(Linear(LinearOptions()), signatures(n, LINEAR_WIDTH, seed=0))
    linear_cross = linear.kernel.gram(linear.signatures(), signatures(TARGETS, LINEAR_WIDTH, 1))
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


def _large_row(n: int) -> Row:
    """One matrix at a time. LAPACK's is any positive definite one, as its time does not depend on
    the numbers; ``exact`` has to make K besides. ``cg``, which would take half an hour, is left
    to the cost model (``benchmarks.costs``)."""
    gram, cross = _case(n)
    ours = {f"tasml, {s}": _scores(gram, cross, s, THEOREMS) for s in SOLVERS if s != "cg"}
    return once(
        f"scores of {TARGETS} targets, N = {n}",
        {"potrf + potrs, in place": lambda: _bare_large(cross), **ours},
        peer="potrf + potrs, in place",
        target={"tasml, exact": 1 / 1.25},
        note=_SETTING,
        most={"tasml, exact": MOST},
    )


def _case(n: int) -> tuple[KernelGram, Tensor]:
    gram = bank(n)
    return gram, gram.kernel.gram(gram.signatures(), signatures(TARGETS, WIDTH, seed=1))


def bank(n: int) -> KernelGram:
    return KernelGram(Gaussian(GaussianOptions(gamma=50.0)), signatures(n, WIDTH, seed=0))


def signatures(n: int, width: int, seed: int) -> Tensor:
    """Means of 25 samples, L2-normalised, around one of 20 centres."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.rand(20, width, generator=torch.Generator().manual_seed(9))
    kinds = torch.randint(20, (n,), generator=random)
    rows = centres[kinds] + torch.rand(n, width, generator=random) / 5
    return here(torch.nn.functional.normalize(rows.double(), dim=1))


def _bare(given: GivenGram, cross: Tensor) -> np.ndarray:
    matrix = given.dense()
    matrix.diagonal().add_(RIDGE)
    lower, _ = lapack.dpotrf(matrix.numpy().T, lower=1, clean=0, overwrite_a=1)
    solution, _ = lapack.dpotrs(lower, cross.numpy(), lower=1)
    return solution


def _bare_large(cross: Tensor) -> np.ndarray:
    """By PyTorch's LAPACK: SciPy's does not serve such sizes (``metaforge.linalg``)."""
    matrix = torch.full((len(cross), len(cross)), 0.5, dtype=torch.float64)
    matrix.diagonal().add_(0.5)
    failed = torch.empty((), dtype=torch.int32)
    with every_core():
        torch.linalg.cholesky_ex(matrix.mT, out=(matrix.mT, failed))
    return lapack.dpotrs(matrix.mT.numpy(), cross.numpy(), lower=1)[0]


def _solvers(gram: KernelGram, cross: Tensor) -> dict[str, Callable[[], Tensor]]:
    return {f"tasml, {s}": _scores(gram, cross, s, THEOREMS) for s in SOLVERS}


def _note(gram: KernelGram, cross: Tensor) -> str:
    exact, near = _scores(gram, cross, "exact", THEOREMS)(), []
    for solver in SOLVERS[1:]:
        found = agreement(exact, _scores(gram, cross, solver, THEOREMS)(), gram.n_tasks // 100)
        overlap = 100 * float(found.overlap.mean())
        near.append(f"{solver} {float(found.error.max()):.1e}, {overlap:.1f} % in common")
    return f"{_SETTING}; off the exact scores (top 1 %): {'; '.join(near)}"


def _scores(
    gram: KernelGram, cross: Tensor, solver: str = "exact", ridge: float | str = RIDGE
) -> Callable[[], Tensor]:
    weighting = Tasml(TasmlOptions.model_validate({"lambda": ridge, "solver": solver}))
    groups = torch.full((gram.n_tasks,), -1)

    def call() -> Tensor:
        return weighting.weights(weighting.fit(gram, groups), cross, cross[0])

    return call
