"""Scores of 100 targets: one factorisation of the bank's kernel matrix and a solve.

The floor is LAPACK's own dpotrf and dpotrs on the same matrix. Beside it, ``tasml``
does the jitter policy, the check for numbers that are not finite and the condition
estimate; the last entry is a linear kernel, solved in its feature space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from benchmarks.harness import Row, compare
from metaforge.gram import KernelGram
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.linear import Linear
from metaforge_kernels.options import GaussianOptions, LinearOptions
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import Tasml

RIDGE = 1e-8
TARGETS, WIDTH, LINEAR_WIDTH = 100, 640, 64


class GivenGram(KernelGram):
    """A kernel matrix made beforehand, copied into the same memory at every call."""

    def __init__(self, gram: KernelGram):
        super().__init__(gram.kernel, gram.signatures())
        self.matrix = gram.dense()
        self.buffer = torch.empty_like(self.matrix)

    def dense(self) -> Tensor:
        return self.buffer.copy_(self.matrix)


def rows() -> Iterator[Row]:
    return (_row(n, rounds) for n, rounds in ((2000, 15), (5000, 7)))


def _row(n: int, rounds: int) -> Row:
    gram = KernelGram(Gaussian(GaussianOptions(gamma=50.0)), _signatures(n, WIDTH, seed=0))
    given = GivenGram(gram)
    targets = _signatures(TARGETS, WIDTH, seed=1)
    cross = gram.kernel.gram(gram.signatures(), targets)
    linear = KernelGram(Linear(LinearOptions()), _signatures(n, LINEAR_WIDTH, seed=0))
    linear_cross = linear.kernel.gram(linear.signatures(), _signatures(TARGETS, LINEAR_WIDTH, 1))
    return compare(
        f"scores of {TARGETS} targets, N = {n}",
        {
            "dpotrf + dpotrs": lambda: _bare(given, cross),
            "tasml, K given": _scores(given, cross),
            "tasml, K built": _scores(gram, cross),
            "tasml, linear kernel": _scores(linear, linear_cross),
        },
        peer="dpotrf + dpotrs",
        target={"tasml, K given": 1 / 1.3},
        note=f"float64, signatures of {WIDTH} columns, {LINEAR_WIDTH} for the linear kernel",
        rounds=rounds,
        memory=True,
    )


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


def _scores(gram: KernelGram, cross: Tensor) -> Callable[[], Tensor]:
    weighting = Tasml(TasmlOptions(lambda_=RIDGE))
    groups = torch.full((gram.n_tasks,), -1)

    def call() -> Tensor:
        return weighting.weights(weighting.fit(gram, groups), cross, cross[0])

    return call
