"""Intervals and paired tests. A result is never a bare number.

Every summary names what it is: mean, sd (with n - 1), n, and a Student t interval of
the mean at 95 %. Where a figure is not defined (n = 1, constant differences) it is None.
"""

from __future__ import annotations

import math
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


def summary(values: Sequence[float] | np.ndarray, comparisons: int = 1) -> dict[str, Any]:
    """mean, sd, n and the 95 % interval of the mean: ``mean +- t(0.975, n-1) sd / sqrt(n)``.

    ``comparisons``: of how many such intervals this is the one that was picked; it is widened
    so that all of them hold at once with 95 % (Bonferroni: ``t(1 - 0.025 / comparisons, n-1)``).
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
    half = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, n - 1)) * sd / n**0.5
    return {"mean": mean, "sd": sd, "n": n, "ci95": [mean - half, mean + half]}


def paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """``summary`` of a - b on the same targets, with the p of no difference.

    p is None where it is not defined: fewer than two pairs, or all differences equal.
    """
    difference = differences(a, b)
    return {**summary(difference), "p": sign_flip_p(difference)}


def differences(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> np.ndarray:
    """a - b, target by target; what rounding alone leaves of a difference is taken away."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    difference = a - b
    rounding = _ROUNDING * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    if len(difference) and np.ptp(difference) <= rounding:
        difference = np.full_like(difference, difference.mean())
    difference[np.abs(difference) <= rounding] = 0.0
    return difference


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> dict[str, Any] | None:
    """The ratio of two means over the same targets, with its 95 % interval (Fieller 1954).

    With the means a and b, their variances ``v = s^2 / n``, their covariance c (of the means)
    and ``t = t(0.975, n-1)``, the ends are the roots r of
    ``(a - r b)^2 = t^2 (v_a - 2 r c + r^2 v_b)``.
    They bound an interval only where the denominator's own t interval is clear of zero; None
    elsewhere, and with fewer than two targets.

    Source: E. C. Fieller, Some Problems in Interval Estimation, J. R. Stat. Soc. B 16 (1954).
    """
    from scipy import stats

    n = len(denominator)
    if n < 2:
        return None
    a, b = float(numerator.mean()), float(denominator.mean())
    t = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1))
    (v_a, c), (_, v_b) = (t**2 * np.cov(numerator, denominator) / n).tolist()  # times t^2
    square = b * b - v_b
    if square <= 0:
        return None
    middle = a * b - c
    root = math.sqrt(max(0.0, middle**2 - square * (a * a - v_a)))
    return {"mean": a / b, "n": n, "ci95": [(middle - root) / square, (middle + root) / square]}


def targets_needed(mean: float, sd: float, power: float = 0.8) -> int:
    """How many targets would show a mean difference of this size, two-sided at 5 %.

    ``n = (z(0.975) + z(power))^2 sd^2 / mean^2 + z(0.975)^2 / 2``, the normal formula with
    Guenther's correction for the t test (W. C. Guenther, The American Statistician 35, 1981).
    """
    from scipy import stats

    level, chance = float(stats.norm.ppf(0.5 + LEVEL / 2)), float(stats.norm.ppf(power))
    return math.ceil((level + chance) ** 2 * (sd / mean) ** 2 + level**2 / 2)


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
