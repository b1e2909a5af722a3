"""Successive halving's rungs, cost and budget; the laws over many sizes. Torch-free."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from metaforge import halving
from metaforge.halving import FEWEST_TARGETS, Rung, affordable, conditionings, rungs

SIZES = list(product((1, 2, 3, 5, 6, 9, 18, 100, 144, 500), (1, 7, 8, 9, 20, 50, 600), (2, 3, 5)))

KNOWN = {
    (144, 50, 3): [Rung(144, 8), Rung(48, 20), Rung(16, 50)],
    (20, 50, 3): [Rung(20, 8), Rung(7, 20), Rung(3, 50)],
    (6, 50, 3): [Rung(6, 20), Rung(2, 50)],
    (5, 50, 3): [Rung(5, 50)],
    (100, 5, 3): [Rung(100, 5)],
}


@pytest.mark.parametrize("sizes", KNOWN, ids=str)
def test_known_rungs(sizes):
    assert rungs(*sizes) == KNOWN[sizes]


def test_the_cost_counts_a_target_of_a_combination_once():
    assert conditionings(KNOWN[144, 50, 3]) == 144 * 8 + 48 * (20 - 8) + 16 * (50 - 20)
    assert conditionings(KNOWN[5, 50, 3]) == 5 * 50


def check_laws(n: int, targets: int, eta: int) -> None:
    found = rungs(n, targets, eta)
    assert found[0].combinations == n
    assert found[-1].targets == targets
    assert found[-1].combinations >= min(2, n)
    assert found[0].targets >= min(FEWEST_TARGETS, targets)
    for before, after in pairwise(found):
        assert after.combinations == -(-before.combinations // eta)
        assert after.targets > before.targets
    assert conditionings(found) <= n * targets


def test_laws_of_the_rungs():
    for sizes in SIZES:
        check_laws(*sizes)


@pytest.mark.parametrize("budget", [1, 49, 100, 333, 5000])
def test_a_budget_is_kept_and_used(budget):
    for n, targets, eta in SIZES:
        count = affordable(n, targets, eta, budget)
        assert count <= n
        assert count == 0 or conditionings(rungs(count, targets, eta)) <= budget
        dearer = range(count + 1, n + 1)
        assert all(conditionings(rungs(more, targets, eta)) > budget for more in dearer)


def test_no_budget_is_the_whole_grid():
    assert affordable(10**6, 50, 3, None) == 10**6


def test_the_laws_reject_a_ladder_that_starts_too_low(monkeypatch):
    monkeypatch.setattr(halving, "_ladder", lambda targets, eta: [2, targets])
    with pytest.raises(AssertionError):
        check_laws(100, 50, 3)
