"""The solvers of tasml against the exact one, where they cannot serve, and what they hold."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from metaforge import factors, iterative, memory
from metaforge.components import Context
from metaforge.contracts import TARGET_BLOCK, TaskKernel
from metaforge.errors import DataError, NumericError, RecipeError
from metaforge.gram import KernelGram
from metaforge.scoring import Scorer, agreement
from metaforge.tasks import TaskBatch
from metaforge.testing import weightings as laws
from metaforge.testing.weightings import Bank
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.laplace import Laplace
from metaforge_kernels.linear import Linear
from metaforge_kernels.options import GaussianOptions, LaplaceOptions, LinearOptions
from metaforge_weightings import solvers
from metaforge_weightings.nystrom import Landmarks, landmarks
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import State, Tasml

N, T = 300, 64
NO_GROUPS = torch.full((N,), -1)
LAMBDAS = (1e-8, 1e-2, "n^-1/2", 1.0)


def tasml(solver: str, value: float | str = "n^-1/2", seed: int = 0, **options) -> Tasml:
    given = {"lambda": value, "solver": solver, **options}
    return Tasml(TasmlOptions.model_validate(given), Context(seed=seed))


def rows(n: int, seed: int) -> Tensor:
    """Signatures around ten centres, L2-normalised."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.rand(10, 16, generator=torch.Generator().manual_seed(9))
    kinds = torch.randint(10, (n,), generator=random)
    made = centres[kinds] + torch.rand(n, 16, generator=random) / 5
    return torch.nn.functional.normalize(made.double(), dim=1)


class Whole(KernelGram):
    """A gram without a feature space, so that a linear kernel is solved as any other."""

    def features(self) -> None:
        return None


KERNELS = {
    "gaussian": lambda: Gaussian(GaussianOptions(gamma=8.0)),
    "sharp gaussian": lambda: Gaussian(GaussianOptions(gamma=50.0)),
    "laplace": lambda: Laplace(LaplaceOptions(sigma=0.5)),
    "linear": lambda: Linear(LinearOptions(embedding="mean")),
}
BANKS = {
    "distinct": lambda: rows(N, 0),
    "duplicates": lambda: rows(N, 0)[torch.arange(N) % 220],
}


@cache
def case(kernel: str, bank: str) -> tuple[Whole, Tensor]:
    made = KERNELS[kernel]()
    signatures = BANKS[bank]()
    return Whole(made, signatures), made.gram(signatures, rows(T, 1))


@cache
def exact(kernel: str, bank: str, ridge: float | str) -> tuple[Tensor, float]:
    """Scores and the system's condition number."""
    gram, cross = case(kernel, bank)
    weighting = tasml("exact", ridge)
    state = weighting.fit(gram, NO_GROUPS)
    return weighting.weights(state, cross, cross[0]), state.solver.report()["condition"]


@pytest.fixture(autouse=True)
def _few_products(monkeypatch) -> None:
    """Cases that do not converge fail in seconds, not minutes."""
    monkeypatch.setattr(iterative, "CAP", 300)


# -- against the exact solver ----------------------------------------------------------

#: Condition numbers that float32 does not serve.
BEYOND = 1e8


def assert_as_exact(weighting: Any, kernel: str, bank: str, ridge: float) -> None:
    gram, cross = case(kernel, bank)
    expected, condition = exact(kernel, bank, ridge)
    state = weighting.fit(gram, NO_GROUPS)
    found = weighting.weights(state, cross, cross[0])
    assert system_residual(gram, state, found, cross) <= iterative.TOLERANCE
    assert float(agreement(expected, found, 20).error.max()) <= condition * iterative.TOLERANCE


@pytest.mark.parametrize("ridge", LAMBDAS)
@pytest.mark.parametrize("bank", BANKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_is_as_exact_or_says_that_it_cannot(kernel, bank, ridge) -> None:
    gram, _ = case(kernel, bank)
    _, condition = exact(kernel, bank, ridge)
    weighting = tasml("float32", ridge)
    if condition > BEYOND:
        with pytest.raises(NumericError, match=r"take weighting\.solver: exact, or a larger"):
            weighting.fit(gram, NO_GROUPS)
        return
    assert_as_exact(weighting, kernel, bank, ridge)


@pytest.mark.parametrize("ridge", LAMBDAS)
@pytest.mark.parametrize("bank", BANKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_conjugate_gradients_are_as_exact(kernel, bank, ridge) -> None:
    assert_as_exact(tasml("cg", ridge, rank=120), kernel, bank, ridge)


@pytest.mark.parametrize("ridge", LAMBDAS)
@pytest.mark.parametrize("bank", BANKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_nystrom_is_exact_where_every_task_is_a_landmark(kernel, bank, ridge) -> None:
    gram, cross = case(kernel, bank)
    expected, condition = exact(kernel, bank, ridge)
    weighting = tasml("nystrom", ridge, rank=N)
    found = weighting.weights(weighting.fit(gram, NO_GROUPS), cross, cross[0])
    error = float(agreement(expected, found, 20).error.max())
    assert error <= max(1e-10, 1e-15 * condition)


def system_residual(gram: Whole, state: State, alpha: Tensor, cross: Tensor) -> float:
    """The largest relative residual of a column, by the whole matrix in float64."""
    product = gram.dense() @ alpha + state.ridge * alpha
    return float(((cross - product).norm(dim=0) / cross.norm(dim=0)).max())


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_nystrom_comes_nearer_with_more_landmarks(kernel) -> None:
    gram, cross = case(kernel, "distinct")
    expected, _ = exact(kernel, "distinct", 1.0)
    errors = []
    for rank in (10, 40, 150):
        weighting = tasml("nystrom", 1.0, rank=rank)
        found = weighting.weights(weighting.fit(gram, NO_GROUPS), cross, cross[0])
        errors.append(float(agreement(expected, found, 20).error.mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.7 * errors[0]


def test_nystrom_is_ridge_regression_on_the_landmarks_features() -> None:
    gram, cross = case("gaussian", "distinct")
    weighting = tasml("nystrom", 1e-2, rank=30)
    state = weighting.fit(gram, NO_GROUPS)
    chosen = Landmarks.of(gram, 30, 0)
    features = chosen.features(gram)
    seen = chosen.whiten.T @ cross[chosen.tasks]
    inner = features.T @ features + 1e-2 * torch.eye(features.shape[1])
    expected = features @ torch.linalg.solve(inner, seen)
    torch.testing.assert_close(weighting.weights(state, cross, cross[0]), expected)
    # exact on the landmarks themselves
    torch.testing.assert_close(
        features[chosen.tasks] @ features.T, gram.block(chosen.tasks, slice(None))
    )


def test_landmarks_are_spread_over_the_bank_whatever_its_order() -> None:
    signatures = rows(N, 0)
    gram = Whole(KERNELS["gaussian"](), signatures)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    turned = Whole(gram.kernel, signatures[order])
    for count in (1, 7, 150, N):
        chosen = landmarks(gram, count, 0)
        assert len(chosen.unique()) == count
        assert torch.equal(order[landmarks(turned, count, 0)], chosen)
    assert not torch.equal(landmarks(gram, 7, 0), landmarks(gram, 7, 1))


def test_a_kernel_of_finite_rank_is_solved_in_its_features_whatever_the_solver() -> None:
    kernel = Linear(LinearOptions(embedding="mean"))
    gram, cross = KernelGram(kernel, rows(N, 0)), kernel.gram(rows(N, 0), rows(5, 1))
    found = []
    for solver in ("exact", "float32", "cg", "nystrom"):
        weighting = tasml(solver, 1e-8)
        found.append(weighting.weights(weighting.fit(gram, NO_GROUPS), cross, cross[0]))
    assert all(torch.equal(found[0], other) for other in found)


# -- laws ----------------------------------------------------------------------------

WEIGHTINGS = {
    "float32": (lambda: tasml("float32"), 1e-7),
    "cg": (lambda: tasml("cg", rank=10), 1e-6),
    "cg, whole": (lambda: tasml("cg"), 1e-8),
    "nystrom": (lambda: tasml("nystrom"), 1e-8),
}


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_laws(name: str) -> None:
    make, tolerance = WEIGHTINGS[name]
    laws.check_weighting(make(), laws.gaussian_case(), tolerance)


def test_nystrom_of_few_landmarks_keeps_the_laws_but_that_of_recall() -> None:
    """A task that is no landmark may not be the one that it resembles most."""
    weighting, given = tasml("nystrom", rank=10), laws.gaussian_case()
    for law in (
        laws.check_shape,
        laws.check_permutation,
        laws.check_columns,
        laws.check_identical_tasks,
    ):
        law(weighting, given)
    with pytest.raises(AssertionError, match="ranks itself first"):
        laws.check_recalls_itself(weighting, given)


class FirstTasks(Tasml):
    """A broken specimen: landmarks by their place in the bank."""

    def fit(self, gram, groups, *, kind="classification"):
        first = torch.arange(10)
        whiten = torch.linalg.inv(torch.linalg.cholesky(gram.block(first, first))).T
        features = gram.block(slice(None), first) @ whiten
        return features, whiten, first

    def weights(self, state, cross, self_):
        features, whiten, first = state
        inner = features.T @ features + torch.eye(10, dtype=torch.float64)
        return features @ torch.linalg.solve(inner, whiten.T @ cross[first])


def test_the_laws_reject_landmarks_by_place() -> None:
    with pytest.raises(AssertionError, match="permutation"):
        laws.check_permutation(FirstTasks(TasmlOptions()), laws.gaussian_case())


class StopsTogether(Tasml):
    """A broken specimen: all columns take as many rounds as their number says."""

    def fit(self, gram, groups, *, kind="classification"):
        return gram

    def weights(self, state, cross, self_):
        x = torch.zeros_like(cross)
        for _ in range(5 * cross.shape[1]):
            x = x + (cross - state.matvec(x) - x) / 40
        return x


def test_the_law_of_columns_rejects_rounds_in_common() -> None:
    with pytest.raises(AssertionError, match="columns"):
        laws.check_columns(StopsTogether(TasmlOptions()), laws.gaussian_case())


class Points(Gaussian):
    """A kernel whose signature is the task's one support sample."""

    def fit(self, sample, generator) -> None: ...

    def signature(self, tasks: TaskBatch) -> Tensor:
        return tasks.support_x[:, 0].double()


def scorer(solver: str, **options) -> Scorer:
    kernel = Points(GaussianOptions(gamma=20.0))
    gram = KernelGram(kernel, rows(N, 0))
    weighting = tasml(solver, **options)
    return Scorer(weighting, weighting.fit(gram, NO_GROUPS), gram, N)


def targets(ids: list[int], shift: float = 0.0) -> TaskBatch:
    numbers = torch.tensor(ids)
    x = rows(600, 1)[numbers]
    x[1:] += shift
    y = torch.zeros(len(ids), 1, dtype=torch.long)
    return TaskBatch(x[:, None], y, task_ids=numbers)


@pytest.mark.parametrize(
    "made", [{"solver": "float32"}, {"solver": "cg", "rank": 20}, {"solver": "nystrom", "rank": 20}]
)
def test_a_target_has_the_same_bits_in_any_company(made) -> None:
    """In blocks of its own, beside others that take longer, and beside other blocks."""
    score = scorer(**made)
    ids = [*range(300, 340), *range(5)]  # of six blocks: two calls
    whole = score.alphas(targets(ids))
    for some in ([300], [300, 4], [2, 300, 333], [300, 0, 100, 200, 400, 500]):
        alone = score.alphas(targets(some, shift=0.2))  # the first as it is, others elsewhere
        assert torch.equal(alone[:, 0], whole[:, ids.index(some[0])])


@pytest.mark.parametrize("solver", ["float32", "cg", "nystrom"])
def test_the_same_fit_twice_has_the_same_bits(solver: str) -> None:
    gram, cross = case("gaussian", "duplicates")
    made = [tasml(solver) for _ in range(2)]
    states = [weighting.fit(gram, NO_GROUPS) for weighting in made]
    first, second = (
        w.weights(s, cross, cross[0]).numpy().tobytes() for w, s in zip(made, states, strict=True)
    )
    assert first == second
    assert made[0].report(states[0]) == made[1].report(states[1])


# -- where they cannot serve -------------------------------------------------------------


def test_float32_says_where_the_matrix_is_not_positive_definite_in_it() -> None:
    gram, _ = case("gaussian", "duplicates")
    with pytest.raises(NumericError) as caught:
        tasml("float32", 1e-8).fit(gram, NO_GROUPS)
    for part in ("'gaussian'", "300 bank tasks", "lambda = 1e-08", "float32", "at most 3e+10"):
        assert part in str(caught.value)


def test_a_solve_that_stalls_says_how_far_it_came() -> None:
    """A factor in float32 that exists and is off by as much as the least eigenvalues."""
    random = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(N, N, generator=random, dtype=torch.float64)).Q
    values = torch.ones(N, dtype=torch.float64)
    values[-30:] = 1e-7
    matrix = basis * values @ basis.T
    bank = Bank((matrix + matrix.T) / 2, kernel_name="steep")
    with pytest.raises(NumericError) as caught:
        tasml("float32", 1e-12).fit(bank, NO_GROUPS)
    message = str(caught.value)
    for part in (
        "'steep'",
        "on 300 bank tasks, lambda = 1e-12, by solver: float32 came to a relative residual of",
        "and 1e-08 is asked for",
        "of 64 right-hand sides; condition number about",
        "take weighting.solver: exact, or a larger weighting.lambda",
    ):
        assert part in message


def test_conjugate_gradients_say_how_far_they_came(monkeypatch) -> None:
    monkeypatch.setattr(iterative, "CAP", 4)
    gram, _ = case("sharp gaussian", "distinct")
    with pytest.raises(NumericError) as caught:
        tasml("cg", 1e-8, rank=20).fit(gram, NO_GROUPS)
    message = str(caught.value)
    for part in (
        "solver: cg came to a relative residual of",
        "in 4 iterations, and 1e-08 is asked for (64 of 64 right-hand sides; condition number",
        "raise weighting.rank or weighting.lambda, or take weighting.solver: exact",
    ):
        assert part in message


def test_targets_that_do_not_converge_are_an_error_too(monkeypatch) -> None:
    gram, cross = case("sharp gaussian", "distinct")
    weighting = tasml("cg", 1e-8, rank=20)
    state = weighting.fit(gram, NO_GROUPS)
    monkeypatch.setattr(iterative, "CAP", 4)
    with pytest.raises(NumericError, match=r"4 iterations.*\(3 of 3 right-hand sides"):
        weighting.weights(state, cross[:, :3], cross[0, :3])


@pytest.mark.parametrize("solver", ["exact", "float32", "cg", "nystrom"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_entries_that_are_not_finite_are_an_error(solver: str, value: float) -> None:
    matrix = torch.eye(N, dtype=torch.float64)
    matrix[:, 7] = matrix[7] = value
    with pytest.raises(NumericError, match=r"'odd'.*not finite"):
        tasml(solver).fit(Bank(matrix, bank_signatures=rows(N, 0), kernel_name="odd"), NO_GROUPS)


def test_landmarks_without_a_positive_eigenvalue_are_an_error() -> None:
    zeros = Bank(torch.zeros(N, N, dtype=torch.float64), kernel_name="naught")
    with pytest.raises(NumericError, match=r"'naught'.* 300 landmarks has no positive"):
        tasml("nystrom").fit(zeros, NO_GROUPS)


# -- options and record ------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["exact", "float32"])
def test_a_rank_that_nobody_reads_is_refused(solver: str) -> None:
    with pytest.raises(ValidationError, match=f"solver: {solver} does not read rank"):
        tasml(solver, rank=10)


def test_what_is_recorded() -> None:
    gram, _ = case("gaussian", "distinct")
    names = {"lambda", "jitter", "condition", "error"}
    more = {
        "exact": set(),
        "float32": {"residual", "iterations"},
        "cg": {"residual", "iterations", "rank"},
        "nystrom": {"rank"},
    }
    for solver, added in more.items():
        weighting = tasml(solver, **({"rank": 50} if "rank" in added else {}))
        report = weighting.report(weighting.fit(gram, NO_GROUPS))
        assert set(report) == names | added, solver
        assert report.get("rank", 50) == 50
        assert 0 <= report.get("residual", 0) <= iterative.TOLERANCE
        assert report.get("iterations", 1) >= 1
        assert report["condition"] == float(f"{report['condition']:.3g}")
        assert report["error"] == float(f"{report['error']:.3g}") > 0


def test_a_lambda_beyond_float32_is_told_as_that() -> None:
    case = laws.gaussian_case()
    with pytest.raises(NumericError, match=r"lambda = 1e\+40 is beyond float32"):
        tasml("float32", 1e40).fit(case.bank, case.groups)


# -- memory ------------------------------------------------------------------------------


def test_memory_is_asked_for_before_there_is_a_matrix(monkeypatch) -> None:
    """By the solver's own need, with the solvers that fit in the place of those that do not."""
    kernel: TaskKernel = KERNELS["gaussian"]()
    monkeypatch.setattr(memory, "available", lambda device: 4 * 10**9)
    with pytest.raises(DataError) as caught:
        tasml("exact").require_memory(30_000, kernel)
    message = str(caught.value)
    assert "the matrix of task kernel 'gaussian' on bank.size: 30000 tasks takes 7.2 GB" in message
    assert "4.0 GB are free on cpu; take weighting.solver: nystrom (0.7 GB) or cg (" in message
    assert "float32" not in message  # 3.6 GB and its vectors
    with pytest.raises(
        DataError, match=r"take weighting\.solver: nystrom with weighting\.rank: 160 or"
    ):
        tasml("cg", rank=500_000).require_memory(10**6, kernel)
    tasml("cg").require_memory(30_000, kernel)
    tasml("nystrom").require_memory(30_000, kernel)
    monkeypatch.setattr(memory, "available", lambda device: 5 * 10**9)
    tasml("float32").require_memory(30_000, kernel)
    with pytest.raises(DataError, match=r"solver: float32, the matrix.*takes 6.1 GB"):
        tasml("float32").require_memory(36_000, kernel)
    with pytest.raises(DataError, match=r"solver: cg for bank.size: 1000000 tasks takes 32.6 GB"):
        tasml("cg").require_memory(10**6, kernel)
    tasml("exact").require_memory(10**6, Linear(LinearOptions()))


def test_off_the_cpu_the_factor_is_a_second_matrix(monkeypatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 10 * 10**9)
    weighting = Tasml(TasmlOptions(), Context(device="cuda"))
    with pytest.raises(DataError, match=r"14.4 GB and 10.0 GB are free on cuda; take .*float32"):
        weighting.require_memory(30_000, KERNELS["gaussian"]())


def test_a_switch_that_is_no_number_is_refused_before_the_long_work(monkeypatch) -> None:
    monkeypatch.setenv("METAFORGE_FACTORS", "off")
    with pytest.raises(RecipeError, match=r"METAFORGE_FACTORS='off': expected the gigabytes"):
        tasml("exact").require_memory(10, KERNELS["gaussian"]())


def test_blocks_of_targets_are_those_of_the_engine() -> None:
    assert tasml("exact").blocks == tasml("nystrom").blocks == 1
    assert tasml("float32").blocks == tasml("cg").blocks > 1
    assert TARGET_BLOCK == 64


def test_how_long_a_large_factorisation_takes_is_told(monkeypatch):
    """A small bank's is not; the estimate is of the same size as what it took."""
    monkeypatch.setattr(factors, "LEAST_TASKS", 3000)
    monkeypatch.setenv("METAFORGE_FACTORS", "0")
    said: list[str] = []
    context = Context(report=said.append)
    for count in (N, 3000):
        gram = KernelGram(Gaussian(GaussianOptions(gamma=1.0)), rows(count, 0))
        solvers.exact(gram, 0.1, context)
    assert len(said) == 1
    found = re.fullmatch(
        r"scores: factoring the matrix of 3,000 bank tasks, about (\d+) s", said[0]
    )
    assert found
    assert int(found[1]) < 30
