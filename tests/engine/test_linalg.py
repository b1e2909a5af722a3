"""The large symmetric solve: in place, with jitter on record, and a useful failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.harness import peak_memory
from metaforge import linalg
from metaforge.errors import NumericError
from metaforge.gram import KernelGram
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_factor_takes_the_memory_of_the_matrix(dtype) -> None:
    matrix = spectrum_matrix([1.0, 2.0, 3.0]).to(dtype)
    factor = linalg.factor(lambda: matrix, 0.0, "k")
    assert factor.lower.data_ptr() == matrix.data_ptr()
    assert factor.lower.dtype == dtype


def test_a_matrix_in_float32_is_factored_and_solved_in_float32(either_way: str) -> None:
    matrix, right = spectrum_matrix([1.0, 2.0, 0.1, 3.0, 0.5]), torch.arange(10.0).view(5, 2)
    found = linalg.attempt(matrix.float(), 0.01, "k")
    assert found is not None
    solution = found.solve(right)
    assert solution.dtype == torch.float32
    expected = torch.linalg.solve(matrix + 0.01 * torch.eye(5), right.double())
    torch.testing.assert_close(solution.double(), expected, rtol=1e-4, atol=1e-4)
    assert linalg.attempt(matrix.float(), -0.2, "k") is None


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak")
@pytest.mark.parametrize("large", [False, True], ids=["scipy", "pytorch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fit_holds_one_matrix_of_its_precision(dtype, large, monkeypatch) -> None:
    """Resident memory at its peak, from the signatures to the factor. A second matrix, or one in
    float64 on the way to float32, would make it twice or three times as much."""
    n = 6000
    if large:
        monkeypatch.setattr(linalg, "_LARGEST", 1000)
    random = torch.Generator().manual_seed(0)
    signatures = torch.randn(n, 4, generator=random, dtype=torch.float64)
    gram = KernelGram(Gaussian(GaussianOptions(gamma=1.0)), signatures)
    small = KernelGram(gram.kernel, signatures[:1200])
    linalg.attempt(small.dense(dtype), 1.0, "k")  # buffers of BLAS, of tiles
    held = []
    peak = peak_memory(lambda: held.append(linalg.attempt(gram.dense(dtype), 1.0, "k")))
    matrix = dtype.itemsize * n**2
    assert held[0] is not None
    assert 0.8 * matrix < peak < 1.6 * matrix


def test_a_large_matrix_is_factored_by_pytorch_in_its_memory(monkeypatch) -> None:
    matrix = spectrum_matrix([1.0 + i for i in range(27)])
    right = torch.arange(54.0, dtype=torch.float64).view(27, 2)
    whole = linalg.factor(matrix.clone, 0.1, "k")
    monkeypatch.setattr(linalg, "_LARGEST", 10)
    monkeypatch.setattr(linalg.lapack, "dpotrf", None)  # would fail if it were called
    again = matrix.clone()
    found = linalg.factor(lambda: again, 0.1, "k")
    assert found.lower.data_ptr() == again.data_ptr()
    torch.testing.assert_close(found.lower.tril(), whole.lower.tril())
    torch.testing.assert_close(found.solve(right), whole.solve(right))
    assert found.condition == pytest.approx(whole.condition)
    matrix[13, 13] = -1.0
    assert linalg.attempt(matrix, 0.1, "k") is None


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
