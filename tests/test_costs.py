"""The model of what large runs cost, on constants that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import pages, scaling
from benchmarks.costs import __main__ as command
from benchmarks.costs import card, constants, model
from benchmarks.costs.model import Column, Constants, Plan

DEVICE = Constants(
    call=1.0, task=0.5, together=1, signature=0.25, kernel=10.0, factor=5.0, basis=4.0, solve=2.0
)
PLAN = Plan(
    bank=30, targets=7, solver="exact", meta_steps=4, steps=3, batch=5, columns=2, landmarks=10
)


def test_meta_training_is_split_by_places_and_pays_for_the_exchange():
    device = replace(DEVICE, bandwidth=8.0, latency=0.1)
    plan = replace(PLAN, theta_bytes=16)
    assert model.meta_step(plan, device) == 1 + 5 * 0.5
    assert model.meta_step(plan, device, ranks=2) == 1 + 3 * 0.5 + 2 * (16 / 8 / 2 + 0.1)


@pytest.mark.parametrize(
    ("ranks", "together", "calls", "own"), [(1, 1, 7, 7), (2, 1, 4, 4), (2, 3, 2, 4), (1, 64, 1, 7)]
)
def test_targets_are_split_over_ranks_and_share_calls(ranks, together, calls, own):
    device = replace(DEVICE, together=together)
    assert model.conditioning(PLAN, device, ranks) == 3 * (calls * 1.0 + own * 6 * 0.5)


def test_scores_are_the_sum_of_signatures_kernel_factor_and_solves():
    n, t, p, m = 30, 7, 2, 10
    before = n * 0.25 + 2 * n * t * p / 10
    features = 2 * n * m * p / 10 + 10 * n * m**2 / 4
    exact = n**2 * p / 10 + n**3 / 3 / 5 + 2 * n**2 * t / 2
    assert model.scores(PLAN, DEVICE) == pytest.approx(before + exact)
    nystrom = features + 2 * n * t * m / 2
    assert model.scores(replace(PLAN, solver="nystrom"), DEVICE) == pytest.approx(before + nystrom)
    passes, each = 2 * n**2 * p / 10, (64 + t) * (2 * n**2 + 4 * n * m) / 2
    cg = features + 9 * (passes + each)
    plan = replace(PLAN, solver="cg", iterations=9)
    assert model.scores(plan, DEVICE) == pytest.approx(before + cg)
    more = replace(plan, targets=257)
    assert model.scores(more, DEVICE) > model.scores(replace(plan, targets=256), DEVICE) + 9 * 180


def test_the_table_has_a_line_for_every_plan_and_device_and_says_what_does_not_fit():
    columns = [
        Column("cores", DEVICE, 1, float("inf"), False),
        Column("8 x card", DEVICE, 8, 14_000, True),
    ]
    assert model.memory(PLAN, off_cpu=False) == 8 * 30 * 2 + 8 * 30**2
    assert model.memory(PLAN, off_cpu=True) == 8 * 30 * 2 + 16 * 30**2
    large = Plan(bank=10**6, targets=1, solver="cg")
    vectors = 8 * 10**6 * 256 * 12
    assert model.memory(large, off_cpu=False) == 8 * 10**6 * 640 + 8 * 10**9 + vectors
    lines = model.table([PLAN], columns).splitlines()[2:]
    on_cores, on_cards = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    assert on_cores == ["30", "7", "exact", "cores", "14 s", "2.3 h", "84 s", "7.68e-06 GB"]
    assert on_cards[3:6] == ["8 x card", "6 s", "-"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.5, "0.5 s"), (119, "1.2e+02 s"), (120, "2 min"), (7200, "2 h"), (3e5, "3.5 days")],
)
def test_durations_are_told_in_the_largest_unit_of_two(value, words):
    assert model.duration(value) == words


def test_the_fit_finds_the_constants_that_steps_were_made_of(monkeypatch):
    monkeypatch.setattr(
        constants, "step_seconds", lambda batch, targets: 2.0 + targets * (batch + 1) * 0.25
    )
    assert constants._fitted(1) == pytest.approx((2.0, 0.25))
    assert constants._fitted(64) == pytest.approx((2.0, 0.25))


def test_a_card_is_counted_from_a_step_that_is_run():
    calls, operations = card._counts(targets=2, steps=1)
    rows = 2 * (12 * 5 * 20 + 5 * 10)  # support and query of the bank's; of targets, twice support
    product = 2 * rows * 640 * 640
    assert 20 < calls < 2000
    assert 2 * product < operations < 6 * product


def test_the_page_has_a_place_for_the_table():
    page = scaling.PAGE.read_text(encoding="utf-8")
    assert pages.put("costs", "nothing", page) != page
    assert {plan.solver for plan in command.PLANS} == set(model._SOLVERS)
