"""Intervals and paired tests. A result is never a bare number.

Every summary names what it is: mean, sd (with n - 1), n, and a Student t interval of
the mean at 95 %. Where a figure is not defined (n = 1, constant differences) it is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LEVEL = 0.95
#: What subtracting two scores may leave of their rounding, relative to the scores.
_ROUNDING = 1e-12
#: Sign flips drawn for the permutation test; the smallest p it can give is 1 / (this + 1).
PERMUTATIONS = 9999
METHOD = (
    "ci95: mean +- t(0.975, n-1) sd / sqrt(n) over targets; sd with n-1; "
    f"p: two-sided sign-flip permutation test of the mean paired difference, {PERMUTATIONS} flips"
)


def summary(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """mean, sd, n and the 95 % interval of the mean: ``mean +- t(0.975, n-1) sd / sqrt(n)``.

    The interval is None where it is not defined: n = 1, or values that do not vary.
    """
    from scipy import stats

    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n == 0:
        return {"mean": None, "sd": None, "n": 0, "ci95": None}
    mean = float(x.mean())
    if n == 1:
        return {"mean": mean, "sd": None, "n": 1, "ci95": None}
    if np.ptp(x) == 0:
        return {"mean": float(x[0]), "sd": 0.0, "n": n, "ci95": None}
    sd = float(x.std(ddof=1))
    half = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1)) * sd / n**0.5
    return {"mean": mean, "sd": sd, "n": n, "ci95": [mean - half, mean + half]}


def paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """``summary`` of a - b on the same targets, with the p of no difference.

    p is None where it is not defined: fewer than two pairs, or all differences equal.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    difference = a - b
    rounding = _ROUNDING * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    if len(difference) and np.ptp(difference) <= rounding:
        difference = np.full_like(difference, difference.mean())
    difference[np.abs(difference) <= rounding] = 0.0
    return {**summary(difference), "p": sign_flip_p(difference)}


def sign_flip_p(difference: np.ndarray, flips: int = PERMUTATIONS) -> float | None:
    """Two-sided sign-flip permutation test of a zero mean, from a fixed seed.

    ``p = (1 + #{|mean of flipped| >= |mean|}) / (1 + flips)``, an exact level whatever
    ``flips`` is.
    """
    n = len(difference)
    if n < 2 or np.ptp(difference) == 0:
        return None
    rng = np.random.default_rng(0)
    # Sums that tie may differ in their last bits, whatever the size of the observed one.
    reached = abs(difference.sum()) - _ROUNDING * np.abs(difference).sum()
    count = 0
    block = max(1, 2_000_000 // n)
    for start in range(0, flips, block):
        signs = rng.integers(0, 2, (min(block, flips - start), n)) * 2 - 1
        count += int((np.abs(signs @ difference) >= reached).sum())
    return (1 + count) / (1 + flips)
