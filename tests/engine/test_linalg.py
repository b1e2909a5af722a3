"""The large symmetric solve: in place, with jitter on record, and a useful failure."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metaforge import linalg
from metaforge.errors import NumericError


def spectrum_matrix(eigenvalues: list[float]) -> Tensor:
    """A symmetric matrix with these eigenvalues."""
    n = len(eigenvalues)
    random = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(n, n, generator=random, dtype=torch.float64)).Q
    matrix = basis * torch.tensor(eigenvalues, dtype=torch.float64) @ basis.T
    return (matrix + matrix.T) / 2


@pytest.fixture(params=["lapack", "torch"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The CPU's way and, on the CPU, the way of other devices."""
    if request.param == "torch":
        monkeypatch.setattr(linalg, "_has_lapack", lambda device: False)
    return request.param


def test_solves(either_way: str) -> None:
    matrix = spectrum_matrix([1.0, 2.0, 0.1, 3.0, 0.5])
    right = torch.arange(10.0, dtype=torch.float64).view(5, 2)
    factor = linalg.factor(matrix.clone, 0.01, "k")
    expected = torch.linalg.solve(matrix + 0.01 * torch.eye(5), right)
    torch.testing.assert_close(factor.solve(right), expected)
    torch.testing.assert_close(factor.solve(right[:, :1]), expected[:, :1])
    assert factor.jitter == 0


def test_the_factor_takes_the_memory_of_the_matrix() -> None:
    matrix = spectrum_matrix([1.0, 2.0, 3.0])
    factor = linalg.factor(lambda: matrix, 0.0, "k")
    assert factor.lower.data_ptr() == matrix.data_ptr()


def test_jitter_grows_by_decades_until_it_serves_and_is_recorded(either_way: str) -> None:
    matrix = spectrum_matrix([1.0] * 9 + [-3e-9])
    built = []

    def build() -> Tensor:
        built.append(1)
        return matrix.clone()

    factor = linalg.factor(build, 1e-12, "k")
    mean = float(matrix.diagonal().mean())
    assert factor.jitter == pytest.approx(1e-8 * mean)
    assert len(built) == 6  # none, then 1e-12 to 1e-8: a failed factor destroys the matrix
    system = matrix + (1e-12 + factor.jitter) * torch.eye(10)
    right = matrix[:, :3] @ torch.ones(3, 3, dtype=torch.float64)
    torch.testing.assert_close(system @ factor.solve(right), right, atol=1e-6, rtol=0)


def test_a_matrix_beyond_jitter_is_an_error_that_says_how_far(either_way: str) -> None:
    matrix = spectrum_matrix([1.0, 1.0, -0.25])
    with pytest.raises(NumericError) as caught:
        linalg.factor(matrix.clone, 1e-8, "squashed")
    message = str(caught.value)
    for part in ("'squashed'", "3 bank tasks", "1e-08", "-0.25", "raise weighting.lambda"):
        assert part in message


def test_a_diagonal_of_zeros_is_said_and_gives_no_jitter(either_way: str) -> None:
    matrix = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    with pytest.raises(NumericError) as caught:
        linalg.factor(matrix.clone, 1e-8, "hollow")
    assert "not positive definite (its diagonal is all zeros);" in str(caught.value)
    assert "jitter" not in str(caught.value)
    assert "eigenvalue is -1;" in str(caught.value)


def test_jitter_is_never_negative(either_way: str) -> None:
    """Of a diagonal that is negative it would make matters worse."""
    matrix = -torch.eye(3, dtype=torch.float64)
    with pytest.raises(NumericError, match=r"even with jitter 1e-06; .* eigenvalue is -1;"):
        linalg.factor(matrix.clone, 1e-8, "negative")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_entries_that_are_not_finite_are_an_error(either_way: str, value: float) -> None:
    matrix = spectrum_matrix([1.0, 2.0, 3.0])
    matrix[0, 2] = matrix[2, 0] = value
    with pytest.raises(NumericError, match=r"'k'.*not finite"):
        linalg.factor(matrix.clone, 1e-8, "k")


def test_the_condition_number_is_estimated() -> None:
    matrix = spectrum_matrix([1.0, 1e-3, 0.5, 2.0])
    exact = float(torch.linalg.cond(matrix, 1))
    assert linalg.factor(matrix.clone, 0.0, "k").condition == pytest.approx(exact, rel=0.5)


def test_one_task_is_a_bank() -> None:
    factor = linalg.factor(lambda: torch.ones(1, 1, dtype=torch.float64), 1.0, "k")
    assert factor.solve(torch.ones(1, 1, dtype=torch.float64)).item() == pytest.approx(0.5)
