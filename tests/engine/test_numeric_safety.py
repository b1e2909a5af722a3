"""Where numbers are at their limits: banks of tasks that are alike, kernels too wide or narrow,
steps that overflow. Such a run ends in words, or says what its ranking is worth."""

from __future__ import annotations

from fractions import Fraction
from operator import mul
from typing import Any

import pytest
import torch
from torch import Tensor

import metaforge
from metaforge import linalg, said
from metaforge.errors import NumericError
from metaforge.scoring import raw_statistics
from metaforge_weightings.features import FeatureSolve
from metaforge_weightings.solvers import Direct
from tests.small import SMALL

N, TOP = 24, 3


def points(gap: float) -> Tensor:
    """[N] places of tasks: four clusters of six, within each of which they lie ``gap`` apart."""
    places = torch.linspace(0, 3, 4, dtype=torch.float64).repeat_interleave(6)
    return places + gap * (torch.arange(N) % 6)


def gaussian(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-((a[:, None] - b[None]) ** 2) / 2)


def solved(
    gap: float, ridge: float, order: Tensor | None = None
) -> tuple[Tensor, dict[str, Any], Tensor, Tensor]:
    """alpha [N, T] in the order of the places, what is reported of the solve, K and v."""
    order = torch.arange(N) if order is None else order
    bank, targets = points(gap), torch.tensor([0.35, 1.1, 2.6], dtype=torch.float64)
    k, v = gaussian(bank, bank), gaussian(bank, targets)
    solver = Direct(linalg.factor(lambda: k[order][:, order].contiguous(), ridge, "toy"))
    alpha = torch.empty_like(v)
    alpha[order] = solver.solve(v[order])
    return alpha, dict(solver.report()), k, v


def fractions(matrix: Tensor) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in matrix.tolist()]


def exact(k: list[list[Fraction]], v: Tensor, ridge: float) -> Tensor:
    """(K + ridge I)^-1 v by elimination in fractions."""
    rows = [own + right for own, right in zip(k, fractions(v), strict=True)]
    n = len(rows)
    for i in range(n):
        rows[i][i] += Fraction(ridge)
    for i in range(n):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(n):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return torch.tensor([[float(x) for x in row[n:]] for row in rows], dtype=torch.float64)


def warned(alpha: Tensor, report: dict[str, Any], top_m: int = TOP) -> list[str]:
    names = ("alpha_min", "alpha_max", "alpha_sum", "alpha_negative", "alpha_norm", "alpha_spread")
    rows = raw_statistics(alpha, top_m).tolist()
    records = [{"weights": dict(zip(names, row, strict=True))} for row in rows]
    return said.ranking_warning({"weighting": report}, records)


def recalled(alpha: Tensor) -> list[set[int]]:
    return [set(column.topk(TOP).indices.tolist()) for column in alpha.T]


@pytest.mark.parametrize("ridge", [1e-1, 1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("gap", [0.05, 1e-4])
def test_the_reported_error_holds(gap, ridge):
    alpha, report, k, v = solved(gap, ridge)
    truth = exact(fractions(k), v, ridge + report["jitter"])
    error = torch.linalg.vector_norm(alpha - truth, dim=0)
    length = torch.linalg.vector_norm(truth, dim=0)
    assert (error <= report["error"] * length).all()


@pytest.mark.parametrize("ridge", [1e-2, 1e-10])
def test_the_reported_error_holds_in_feature_space(ridge):
    features = torch.randn(N, 5, generator=torch.Generator().manual_seed(0)).double()
    features[:, 4] = features[:, 3] + 1e-5 * features[:, 4]
    solver = FeatureSolve.of(features, ridge)
    v = features @ torch.eye(5).double()[:, :3]
    rows = fractions(features)
    product = [[sum(map(mul, a, b), Fraction(0)) for b in rows] for a in rows]
    truth = exact(product, v, ridge)
    error = torch.linalg.vector_norm(solver.solve(v) - truth, dim=0)
    bound = solver.report()["error"] * torch.linalg.vector_norm(truth, dim=0)
    assert (error <= bound).all()


ORDERS = [torch.randperm(N, generator=torch.manual_seed(seed)) for seed in range(4)]


@pytest.mark.parametrize("ridge", [1e-2, 1e-10])
@pytest.mark.parametrize("gap", [0.05, 1e-9])
def test_a_bank_whose_ranking_is_determined_is_not_warned_of(gap, ridge):
    alpha, report, _, _ = solved(gap, ridge)
    assert all(recalled(solved(gap, ridge, order)[0]) == recalled(alpha) for order in ORDERS)
    assert warned(alpha, report) == []


@pytest.mark.parametrize("ridge", [1e-2, 1e-10])
def test_where_the_order_of_the_bank_decides_who_is_recalled_the_run_says_so(ridge):
    alpha, report, _, _ = solved(0, ridge)  # tasks that are one to the kernel
    others = [recalled(solved(0, ridge, order)[0]) for order in ORDERS]
    assert any(found != recalled(alpha) for found in others)
    (line,) = warned(alpha, report)
    assert "rounding decides which bank tasks 3 of 3 targets recall" in line


@pytest.mark.parametrize(("error", "lines"), [(0.24, 0), (0.26, 1)])
def test_an_error_of_half_the_spread_can_exchange_two_tasks(error, lines):
    weights = {"alpha_norm": 2.0, "alpha_spread": 1.0}
    fits = {"weighting": {"error": error, "condition": None}}
    assert len(said.ranking_warning(fits, [{"weights": weights}])) == lines


def test_a_bank_of_one_task_many_times_ranks_nothing():
    k, v = torch.ones(N, N).double(), torch.ones(N, 2).double()
    solver = Direct(linalg.factor(k.clone, 1e-3, "toy"))
    assert "2 of 2 targets" in warned(solver.solve(v), dict(solver.report()))[0]


def test_weights_without_an_estimate_of_their_error_are_not_judged():
    alpha, report, _, _ = solved(0, 1e-2)
    del report["error"]
    assert warned(alpha, report) == []


# -- whole runs ----------------------------------------------------------------------


def run(tmp_path, *overrides: str) -> dict[str, Any]:
    return metaforge.run(SMALL, *overrides, f"output={tmp_path}", quiet=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("inner.lr=1e30", "inner step"),
        ("meta_train.optimizer.lr=1e30", "lower the inner or the outer learning rate"),
        ("condition.optimizer.lr=1e30", "target 0 .*not finite after conditioning; lower"),
    ],
)
def test_steps_that_overflow_end_the_run_in_words(tmp_path, override, message):
    with pytest.raises(NumericError, match=f"(?i){message}"):
        run(tmp_path, override)


@pytest.mark.parametrize(
    "kernel", ["{use: gaussian, gamma: 1e100}", "{use: gaussian, gamma: 1e-100}"]
)
def test_a_kernel_far_too_wide_or_narrow_is_told(tmp_path, kernel):
    try:
        told = "\n".join(run(tmp_path, f"kernel={kernel}")["warnings"])
    except NumericError as error:
        told = str(error)
    assert "kernel" in told
