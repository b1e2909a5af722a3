"""Solves by products alone: what they reach, when they give up, and that columns stay apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from metaforge import iterative
from metaforge.iterative import (
    CAP,
    TOLERANCE,
    Solution,
    Steps,
    conjugate_gradients,
    refinement,
    together,
)


def system(n: int = 50, least: float = 1e-3) -> Tensor:
    """A symmetric positive definite matrix with eigenvalues from ``least`` to 1."""
    random = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(n, n, generator=random, dtype=torch.float64)).Q
    matrix = basis * torch.logspace(0, float(torch.tensor(least).log10()), n).double() @ basis.T
    return (matrix + matrix.T) / 2


def right_sides(n: int = 50, columns: int = 4, seed: int = 1) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(n, columns, generator=random, dtype=torch.float64)


def solve(matrix: Tensor, right: Tensor, method: Callable[[Tensor], Steps]) -> Solution:
    return together([method(right)], multiply(matrix))[0]


def multiply(matrix: Tensor) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    return lambda vectors: [matrix @ vector for vector in vectors]


def by_float32(matrix: Tensor) -> Callable[[Tensor], Steps]:
    lower = torch.linalg.cholesky(matrix.float())

    def correct(residual: Tensor) -> Tensor:
        return torch.cholesky_solve(residual.float(), lower).double()

    return lambda right: refinement(right, correct)


def by_gradients(matrix: Tensor) -> Callable[[Tensor], Steps]:
    return lambda right: conjugate_gradients(right, lambda residual: residual)


METHODS = {"refinement": by_float32, "conjugate gradients": by_gradients}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Callable[[Tensor], Callable[[Tensor], Steps]]:
    return METHODS[request.param]


def test_the_residual_is_reached_and_is_the_exact_one(method) -> None:
    matrix, right = system(), right_sides()
    found = solve(matrix, right, method(matrix))
    exact = (right - matrix @ found.x).norm(dim=0) / right.norm(dim=0)
    assert found.converged.all()
    assert (exact <= TOLERANCE).all()
    torch.testing.assert_close(found.residual, exact, rtol=1e-3, atol=1e-15)
    expected = torch.linalg.solve(matrix, right)
    assert ((found.x - expected).norm(dim=0) <= 1e3 * TOLERANCE * expected.norm(dim=0)).all()


def test_a_right_side_of_zeros_has_zeros_for_an_answer(method) -> None:
    matrix, right = system(), right_sides()
    right[:, 2] = 0
    found = solve(matrix, right, method(matrix))
    assert found.x[:, 2].eq(0).all()
    assert found.converged.all()
    assert found.iterations[2] == 0
    assert solve(matrix, torch.zeros(50, 3).double(), method(matrix)).x.eq(0).all()


@pytest.mark.parametrize("mine", ["hard", "easy"])
def test_a_column_has_the_same_bits_beside_hard_and_easy_ones(method, mine: str) -> None:
    matrix = system(least=1e-5)
    easy = torch.linalg.eigh(matrix).eigenvectors[:, -4:]
    columns = {"hard": right_sides(columns=1), "easy": easy[:, :1]}
    bits, iterations = set(), []
    for others in (
        torch.zeros(50, 3).double(),
        right_sides(columns=3, seed=2),
        easy[:, 1:],
        torch.full((50, 3), torch.nan).double(),
    ):
        found = solve(matrix, torch.cat([others, columns[mine]], 1), method(matrix))
        bits.add(found.x[:, 3].numpy().tobytes())
        iterations.append(found.iterations)
    assert len(bits) == 1
    assert iterations[1][0] > iterations[2][0] > 0  # hard ones do take longer


class _AllGoOn(iterative._Columns):
    """A broken specimen: a column goes on as long as any other does."""

    def settle(self, product: Tensor) -> None:
        super().settle(product)
        self.open = torch.full_like(self.open, bool(self.open.any()))


def test_columns_that_wait_for_each_other_would_not_have_the_same_bits(monkeypatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(iterative, "_Columns", _AllGoOn)
    with pytest.raises(AssertionError, match=r"assert .* == 1"):
        test_a_column_has_the_same_bits_beside_hard_and_easy_ones(by_float32, "easy")


def test_blocks_that_go_on_together_have_the_bits_of_each_alone(method) -> None:
    matrix = system()
    blocks = [right_sides(seed=seed) * scale for seed, scale in ((1, 1), (2, 0), (3, 1e-9))]
    make = method(matrix)
    found = together([make(block) for block in blocks], multiply(matrix))
    for block, solution in zip(blocks, found, strict=True):
        assert torch.equal(solution.x, solve(matrix, block, make).x)
        assert torch.equal(solution.iterations, solve(matrix, block, make).iterations)


def test_products_are_asked_for_once_a_step_whatever_the_blocks() -> None:
    matrix, passes = system(), []

    def products(vectors: Sequence[Tensor]) -> list[Tensor]:
        passes.append(len(vectors))
        return multiply(matrix)(vectors)

    make = by_gradients(matrix)
    found = together([make(right_sides(seed=seed)) for seed in range(3)], products)
    steps = max(int(solution.iterations.max()) for solution in found)
    assert passes[0] == 3
    assert len(passes) == steps + 1  # and the exact residual


def test_refinement_stops_where_the_residual_does_not_fall() -> None:
    matrix, passes = system(), []

    def products(vectors: Sequence[Tensor]) -> list[Tensor]:
        passes.append(1)
        return multiply(matrix)(vectors)

    (found,) = together([refinement(right_sides(), lambda residual: 0.1 * residual)], products)
    assert len(passes) == 1
    assert not found.converged.any()


def test_numbers_that_are_not_finite_are_no_convergence(method) -> None:
    matrix, right = system(), right_sides()
    right[3, 1] = torch.nan
    found = solve(matrix, right, method(matrix))
    assert found.converged.tolist() == [True, False, True, True]


def test_conjugate_gradients_stop_at_the_cap(monkeypatch) -> None:
    monkeypatch.setattr(iterative, "CAP", 7)
    matrix = system(least=1e-6)
    found = solve(matrix, right_sides(), by_gradients(matrix))
    assert found.iterations.tolist() == [7] * 4
    assert not found.converged.any()
    assert CAP == 1000


def test_a_recursion_that_drifts_is_held_to_the_exact_residual() -> None:
    """Products that are off in their sixth digit at first mislead what the recursion carries."""
    matrix, asked = system(), []

    def products(vectors: Sequence[Tensor]) -> list[Tensor]:
        asked.append(1)
        off = 1e-6 if len(asked) < 40 else 0.0
        return [matrix @ v * (1 + off * torch.linspace(-1, 1, 50)[:, None]) for v in vectors]

    right = right_sides()
    (found,) = together([by_gradients(matrix)(right)], products)
    assert found.converged.all()
    assert ((right - matrix @ found.x).norm(dim=0) <= TOLERANCE * right.norm(dim=0)).all()
