"""Cholesky's factorisation tile by tile, for matrices that are too large for LAPACK's own.

OpenBLAS, which SciPy brings, factors with several threads through buffers of a fixed size. From
some order on (about 29,000 with two threads) it writes beyond them, and the process dies. Here
LAPACK sees tiles alone, and what is between them are products of matrices, in place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

#: Rows of a tile, and of columns as many times that.
_TILE, _WIDE = 1024, 8


def cholesky(a: np.ndarray) -> bool:
    """Write U, ``U^T U = a``, into the upper triangle of a, symmetric, C-ordered [N, N].

    What is below the diagonal is left as it falls. False where a, which is finite, is not
    positive definite; a is destroyed then.
    """
    space = np.empty((_TILE, _WIDE * _TILE), a.dtype)  # once: fresh memory is slow
    for rows in _tiles(0, len(a), _TILE):
        above, tile = slice(0, rows.start), a[rows, rows]
        for columns in _tiles(rows.start, len(a), _WIDE * _TILE):
            part = a[rows, columns]
            height, width = part.shape
            part -= np.matmul(a[above, rows].T, a[above, columns], out=space[:height, :width])
        potrf = get_lapack_funcs("potrf", (a,))
        upper, failed = potrf(np.asfortranarray(tile), lower=0, overwrite_a=1)
        if failed:
            return False
        tile[:] = upper
        for columns in _tiles(rows.stop, len(a), _WIDE * _TILE):
            _solve(upper, a[rows, columns])
    return True


def _tiles(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def _solve(upper: np.ndarray, b: np.ndarray) -> None:
    """``U^-T b`` in the place of b, as ``(b^T U^-1)^T``."""
    trsm = get_blas_funcs("trsm", (upper,))
    b[:] = trsm(1.0, upper, np.array(b, order="C").T, side=1, overwrite_b=1).T
