"""The one large solve of a run: ``(K + lambda I)^-1`` of a symmetric positive K.

On the CPU LAPACK factors the matrix in its own memory and touches one triangle only; on
other devices ``torch.linalg`` does. In float64, or in float32 where the matrix is that.
Symbols: N rows, T right-hand sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from scipy.linalg import eigh, lapack
from torch import Tensor

from metaforge.errors import NumericError
from metaforge.threads import every_core

#: Jitter tried after none, in shares of the diagonal's mean size: 1e-12, 1e-11, ..., 1e-6.
JITTER_SHARES = tuple(10.0**power for power in range(-12, -5))

#: Rows up to which SciPy's LAPACK factors, the faster of the two. Its OpenBLAS works through
#: buffers of a fixed size; from about 29,000 rows on, with two threads, it writes beyond them and
#: the process dies. PyTorch's (MKL in its builds for x86) does not.
_LARGEST = 16_000


@dataclass(frozen=True, eq=False)
class Factor:
    """The lower Cholesky factor of ``K + (lambda + jitter) I``, above it no matter what.

    ``condition`` estimates the condition number in the 1-norm (LAPACK's pocon); NaN on
    devices other than the CPU.
    """

    lower: Tensor
    jitter: float
    condition: float

    def solve(self, right: Tensor) -> Tensor:
        """``(K + (lambda + jitter) I)^-1 right`` for right [N, T] of the factor's precision,
        which is left as it is. O(N^2 T)."""
        if not _has_lapack(self.lower.device):
            return torch.cholesky_solve(right, self.lower)
        columns = right.T.clone(memory_format=torch.contiguous_format).numpy().T
        potrs = _lapack("potrs", self.lower)
        solution, _ = potrs(self.lower.numpy(), columns, lower=1, overwrite_b=1)
        return torch.from_numpy(solution)


def factor(build: Callable[[], Tensor], ridge: float, name: str) -> Factor:
    """Factor ``K + ridge I``, with as little jitter as makes it positive definite.

    ``build()`` gives K afresh, C-ordered and free to be overwritten: a failed
    factorisation in place destroys it. ``name`` says whose matrix it is.

    Raises ``NumericError`` where K is not finite, or where jitter of 1e-6 of the mean size of
    its diagonal does not help; the message has the smallest eigenvalue.
    """
    for share in (0.0, *JITTER_SHARES):
        matrix = build()
        scale = float(matrix.diagonal().abs().mean())
        jitter = share * scale
        found = attempt(matrix, ridge, name, jitter)
        if found is not None:
            return found
        if not scale:
            break
    raise NumericError(_not_positive_definite(build(), ridge, jitter, name))


def attempt(matrix: Tensor, ridge: float, name: str, jitter: float = 0.0) -> Factor | None:
    """Factor ``matrix + (ridge + jitter) I`` in the matrix's own memory; None where it is not
    positive definite in its precision.

    Raises ``NumericError`` where it is not finite.
    """
    matrix.diagonal().add_(ridge + jitter)
    norm = _one_norm(matrix)
    if not math.isfinite(norm):
        raise NumericError(not_finite(name))
    lower, condition = _cholesky(matrix, norm)
    return None if lower is None else Factor(lower, jitter, condition)


def not_finite(name: str) -> str:
    return (
        f"task kernel {name!r}: its matrix has entries that are not finite; look for "
        "a bandwidth that is zero, or features that are huge or not finite"
    )


def _not_positive_definite(matrix: Tensor, ridge: float, jitter: float, name: str) -> str:
    tried = f", even with jitter {jitter:.3g}" if jitter else " (its diagonal is all zeros)"
    n_tasks = len(matrix)
    return (
        f"task kernel {name!r}: its matrix on {n_tasks} bank tasks plus lambda = {ridge:g} is "
        f"not positive definite{tried}; the kernel matrix's smallest eigenvalue is "
        f"{smallest_eigenvalue(matrix):.3g}; raise weighting.lambda, or correct the kernel (it "
        "has to be positive semi-definite)"
    )


def smallest_eigenvalue(matrix: Tensor) -> float:
    """Of a symmetric matrix, which is overwritten. O(N^3), and slower than a factorisation."""
    if not _has_lapack(matrix.device):
        return float(torch.linalg.eigvalsh(matrix)[0])
    values = eigh(matrix.numpy(), eigvals_only=True, subset_by_index=[0, 0], overwrite_a=True)
    return float(values[0])


def _has_lapack(device: torch.device) -> bool:
    return device.type == "cpu"


def _lapack(routine: str, matrix: Tensor) -> Callable[..., Any]:
    """LAPACK's routine for the matrix's precision."""
    return getattr(lapack, ("s" if matrix.dtype == torch.float32 else "d") + routine)


def _columns(matrix: Tensor) -> object:
    """A symmetric matrix as the Fortran-ordered array that LAPACK works on without a copy."""
    return matrix.numpy().T


def _one_norm(matrix: Tensor) -> float:
    if not _has_lapack(matrix.device):
        return float(torch.linalg.matrix_norm(matrix, 1))
    return _lapack("lange", matrix)("1", _columns(matrix))


def _cholesky(matrix: Tensor, norm: float) -> tuple[Tensor | None, float]:
    """The lower factor, None where there is none, and the condition number."""
    if not _has_lapack(matrix.device):
        lower, failed = torch.linalg.cholesky_ex(matrix)
        return (None if int(failed) else lower), math.nan
    if len(matrix) > _LARGEST:
        triangle, failed = _pytorchs_potrf(matrix)
    else:
        potrf = _lapack("potrf", matrix)
        triangle, failed = potrf(_columns(matrix), lower=1, clean=0, overwrite_a=1)
    if failed:
        return None, math.nan
    reciprocal, _ = _lapack("pocon", matrix)(triangle, norm, uplo="L")
    return torch.from_numpy(triangle), 1.0 / reciprocal if reciprocal else math.inf


def _pytorchs_potrf(matrix: Tensor) -> tuple[Any, bool]:
    """The lower factor as a Fortran-ordered array in the matrix's memory, and whether it failed.

    PyTorch factors in the memory of its ``out``, which is that of its input where both are one
    tensor ordered by columns.
    """
    columns, failed = matrix.mT, torch.empty((), dtype=torch.int32)
    with every_core():
        torch.linalg.cholesky_ex(columns, out=(columns, failed))
    return columns.numpy(), bool(failed)


def generalized_eigenvectors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(lambdas [p], v [p, p]) with ``a v_i = lambda_i b v_i`` and ``v^T b v = I``, by falling
    lambda; v_i are columns. a is symmetric, b symmetric and positive definite."""
    values, vectors = eigh(a.cpu().numpy(), b.cpu().numpy())
    found = torch.from_numpy(values).flip(0), torch.from_numpy(vectors).flip(1)
    return found[0].to(a.device), found[1].to(a.device)
