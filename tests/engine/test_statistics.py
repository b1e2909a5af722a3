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


# -- ratios, families of intervals, power ----------------------------------------------


def test_a_picked_interval_is_widened_for_those_it_was_picked_from():
    x = np.random.default_rng(1).normal(size=25)
    low, high = stats.t.interval(1 - 0.05 / 4, 24, x.mean(), stats.sem(x))
    assert statistics.summary(x, comparisons=4)["ci95"] == pytest.approx([low, high])


def test_a_ratio_has_fiellers_interval():
    """Its ends r are where the t interval of ``a - r b`` touches zero."""
    rng = np.random.default_rng(5)
    b = rng.normal(1.0, 1.0, 40)
    a = 0.5 * b + rng.normal(0.0, 0.5, 40)
    found = statistics.ratio(a, b)
    assert found["mean"] == pytest.approx(a.mean() / b.mean())
    low, high = found["ci95"]
    assert low < found["mean"] < high
    for end, side in ((low, 0), (high, 1)):
        assert statistics.summary(a - end * b)["ci95"][side] == pytest.approx(0.0, abs=1e-12)


def test_there_is_no_ratio_to_what_is_not_clear_of_zero():
    b = np.random.default_rng(6).normal(0.1, 1.0, 40)
    assert statistics.summary(b)["ci95"][0] < 0
    assert statistics.ratio(b + 1.0, b) is None
    assert statistics.ratio(b[:1], b[:1] + 1.0) is None
    assert statistics.ratio(b, b + 1.0)["ci95"] is not None


def test_a_ratio_of_the_same_is_one():
    b = np.random.default_rng(7).normal(1.0, 0.5, 20)
    assert statistics.ratio(b, b)["ci95"] == pytest.approx([1.0, 1.0])


def _covered(interval, truth: float = 0.5, runs: int = 1000) -> float:
    """How often an interval of a ratio holds the true one, as a denominator nears zero."""
    rng = np.random.default_rng(8)
    held = []
    for _ in range(runs):
        b = rng.normal(1.0, 2.0, 40)  # its mean is about 3 standard errors from zero
        found = interval(truth * b + rng.normal(size=40), b)
        if found is not None:
            held.append(found[0] <= truth <= found[1])
    assert len(held) > 0.8 * runs
    return float(np.mean(held))


def test_a_ratios_interval_covers_as_often_as_it_says():
    def fieller(a, b):
        found = statistics.ratio(a, b)
        return found and found["ci95"]

    def held_denominator(a, b):
        """The specimen: as if the denominator were known."""
        return [end / b.mean() for end in statistics.summary(a)["ci95"]]

    assert 0.935 <= _covered(fieller) <= 0.965
    assert not 0.935 <= _covered(held_denominator) <= 0.965


@pytest.mark.parametrize(("effect", "n"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_targets_needed_are_those_of_the_exact_power(effect, n):
    assert statistics.targets_needed(effect, 1.0) == n
    power = []
    for size in (n - 2, n):
        edge = stats.t.ppf(0.975, size - 1)
        power.append(stats.nct.sf(edge, size - 1, effect * size**0.5))
    assert power[0] < 0.8 <= power[1] + 0.005
