"""Intervals and p-values against scipy and against full enumeration."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from metaforge import statistics


def test_summary_is_the_t_interval():
    x = np.random.default_rng(1).normal(size=25)
    found = statistics.summary(x)
    low, high = stats.t.interval(0.95, 24, x.mean(), stats.sem(x))
    assert found["ci95"] == pytest.approx([low, high])
    assert found["sd"] == pytest.approx(x.std(ddof=1))
    assert found["n"] == 25


def test_one_value_and_no_value_are_undefined_not_nan():
    assert statistics.summary([0.5]) == {"mean": 0.5, "sd": None, "n": 1, "ci95": None}
    assert statistics.summary([])["mean"] is None
    assert statistics.paired([0.5], [0.25])["p"] is None


def test_constant_differences_have_no_p():
    assert statistics.paired([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])["p"] is None
    assert statistics.paired([1.0, 2.0], [1.0, 2.0])["p"] is None


def test_differences_that_are_constant_but_for_rounding_are_undefined():
    b = np.array([0.2, 0.48, 0.52, 0.6, 0.36])
    assert np.ptp((b + 0.04) - b) > 0
    found = statistics.paired(b + 0.04, b)
    assert (found["sd"], found["ci95"], found["p"]) == (0.0, None, None)
    assert found["mean"] == pytest.approx(0.04)


def test_ties_of_accuracies_count_as_ties():
    """Sums of signed counts out of 25, enumerated exactly in whole numbers."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(10, 15, (2, 9))
        d = a - b
        if not np.ptp(d):
            continue
        sums = np.array([np.dot(signs, d) for signs in product([-1, 1], repeat=9)])
        exact = (np.abs(sums) >= abs(d.sum())).mean()
        assert statistics.paired(a / 25, b / 25)["p"] == pytest.approx(exact, abs=0.02)


def test_p_matches_full_enumeration():
    d = np.array([0.3, -0.1, 0.4, 0.2, 0.5, -0.2, 0.35, 0.1])
    sums = np.array([np.dot(s, d) for s in product([-1, 1], repeat=len(d))])
    exact = (np.abs(sums) >= abs(d.sum()) - 1e-12).mean()
    assert statistics.sign_flip_p(d) == pytest.approx(exact, abs=0.01)


def test_p_is_level_under_the_null_and_small_under_an_effect():
    rng = np.random.default_rng(2)
    null = [statistics.sign_flip_p(rng.normal(size=30), flips=499) for _ in range(300)]
    assert 0.02 <= np.mean(np.array(null) <= 0.05) <= 0.085
    assert statistics.sign_flip_p(rng.normal(loc=1.0, size=30)) < 0.001


def test_paired_uses_the_pairing():
    base = np.random.default_rng(3).normal(scale=10, size=40)
    gain = base + 0.1 + 0.01 * np.random.default_rng(4).normal(size=40)
    assert statistics.paired(gain, base)["p"] < 0.001
    assert stats.ttest_ind(gain, base).pvalue > 0.5  # what an unpaired test would say
