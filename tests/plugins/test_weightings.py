"""Built-in task weightings: formulas, failures, and the laws."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from metaforge.components import Context
from metaforge.errors import NumericError, PluginError
from metaforge.testing import weightings as laws
from metaforge.testing.weightings import Bank, Case
from metaforge_weightings.options import TasmlOptions, UncertaintyOptions, UniformOptions
from metaforge_weightings.tasml import Tasml
from metaforge_weightings.uncertainty import Uncertainty
from metaforge_weightings.uniform import Uniform


def tasml(value: float | str = "n^-1/2") -> Tasml:
    return Tasml(TasmlOptions.model_validate({"lambda": value}))


def uncertainty(seed: int = 0, **options) -> Uncertainty:
    return Uncertainty(UncertaintyOptions(**options), Context(seed=seed))


NO_GROUPS = torch.full((40,), -1)
WEIGHTINGS = {
    "tasml": tasml,
    "tasml 1e-8": lambda: tasml(1e-8),
    "uniform": lambda: Uniform(UniformOptions()),
    "uncertainty by group": lambda: uncertainty(),
    "uncertainty by task": lambda: uncertainty(per="task"),
}


# -- laws ----------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [0, 3], ids=["no groups", "groups"])
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_laws(name: str, groups: int) -> None:
    # At lambda = 1e-8 a bank with repeated tasks has a condition number near 1e9.
    tolerance = 1e-5 if name == "tasml 1e-8" else laws.TOLERANCE
    laws.check_weighting(WEIGHTINGS[name](), laws.gaussian_case(groups=groups), tolerance)


# -- tasml ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-8, 1e-3, 1.0])
def test_tasml_is_equation_5(ridge: float) -> None:
    case = laws.gaussian_case()
    system = case.bank.matrix + ridge * torch.eye(40, dtype=torch.float64)
    expected = torch.linalg.solve(system, case.cross)
    torch.testing.assert_close(laws.weigh(tasml(ridge), case), expected, rtol=1e-9, atol=1e-9)


def test_the_theorems_lambda_is_one_over_root_n() -> None:
    weighting, bank = tasml(), laws.gaussian_case().bank
    assert weighting.report(weighting.fit(bank, NO_GROUPS))["lambda"] == 40**-0.5


def test_fit_and_weights_leave_their_inputs_as_they_are() -> None:
    case = laws.gaussian_case()
    matrix, cross = case.bank.matrix.clone(), case.cross.clone()
    weighting = tasml()
    state = weighting.fit(case.bank, NO_GROUPS)
    first = weighting.weights(state, case.cross, case.own)
    assert torch.equal(first, weighting.weights(state, case.cross, case.own))
    transposed = case.cross.T.contiguous().T
    assert torch.equal(first, weighting.weights(state, transposed, case.own))
    assert torch.equal(case.bank.matrix, matrix)
    assert torch.equal(case.cross, cross)
    assert torch.equal(transposed, cross)


def test_the_condition_estimate_is_that_of_the_system() -> None:
    weighting, bank = tasml(1e-4), laws.gaussian_case().bank
    system = bank.matrix + 1e-4 * torch.eye(40, dtype=torch.float64)
    exact = float(torch.linalg.cond(system, 1))
    state = weighting.fit(bank, NO_GROUPS)
    found = state.solver.report()["condition"]
    assert exact / 10 <= found <= exact * 1.001
    # What is recorded has no digits that differ with the load of the machine.
    assert weighting.report(state)["condition"] == float(f"{found:.3g}")


def features(n: int = 60, rank: int = 7, targets: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(2)
    both = torch.randn(n + targets, rank, generator=random, dtype=torch.float64)
    return both[:n], both[n:]


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 1.0])
def test_the_feature_space_solve_equals_the_dense_one(ridge: float) -> None:
    bank, targets = features()
    cross, own = bank @ targets.T, targets.square().sum(1)
    lean = laws.weigh(tasml(ridge), Case(Bank.of_features(bank), cross, own, NO_GROUPS))
    dense = laws.weigh(tasml(ridge), Case(Bank(bank @ bank.T), cross, own, NO_GROUPS))
    torch.testing.assert_close(lean, dense, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n", "rank"), [(60, 7), (60, 60), (7, 20)])
def test_the_feature_space_solve_is_stable_at_the_papers_lambda(n: int, rank: int) -> None:
    """``alpha = F (F^T F + lambda I)^-1 u`` for ``v = F u``, of an F with known factors."""
    random = torch.Generator().manual_seed(5)
    small = min(n, rank)
    left, right = (
        torch.linalg.qr(torch.randn(size, small, generator=random, dtype=torch.float64)).Q
        for size in (n, rank)
    )
    singular = torch.logspace(1, -5, small, dtype=torch.float64)
    bank = left * singular @ right.T
    targets = torch.randn(4, rank, generator=random, dtype=torch.float64)
    expected = left * (singular / (singular.square() + 1e-8)) @ right.T @ targets.T
    case = Case(Bank.of_features(bank), bank @ targets.T, targets[:, 0], NO_GROUPS)
    found = laws.weigh(tasml(1e-8), case)
    assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_a_bank_without_features_to_speak_of_has_zero_weights() -> None:
    zeros = torch.zeros(6, 3, dtype=torch.float64)
    case = Case(Bank.of_features(zeros), zeros[:, :2], zeros[0, :2], NO_GROUPS[:6])
    weighting = tasml(1e-3)
    assert laws.weigh(weighting, case).eq(0).all()
    assert weighting.report(weighting.fit(case.bank, case.groups))["condition"] == 1


@pytest.mark.parametrize("value", [0.0, -1.0, "n^-1", "1/sqrt(n)"])
def test_bad_lambdas_are_refused(value: float | str) -> None:
    with pytest.raises(ValidationError, match="lambda"):
        tasml(value)


def test_a_bank_that_is_not_positive_definite_is_an_error_with_the_numbers() -> None:
    bank = Bank(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64), kernel_name="odd")
    with pytest.raises(NumericError, match=r"'odd'.*2 bank tasks.*smallest eigenvalue is -1;"):
        tasml(1e-8).fit(bank, NO_GROUPS[:2])


# -- uniform -------------------------------------------------------------------------


def test_uniform_is_one_over_n_and_needs_no_gram() -> None:
    weighting = Uniform(UniformOptions())
    assert not weighting.needs_gram
    state = weighting.fit(None, NO_GROUPS)
    cross = torch.zeros((), dtype=torch.float64).expand(40, 3)
    assert weighting.weights(state, cross, cross[0]).eq(1 / 40).all()


# -- uncertainty ---------------------------------------------------------------------


def adam(weighting: Uncertainty, state: dict, losses: torch.Tensor, batches: list[torch.Tensor]):
    """Learn the log-variances alone, on given losses, at the weighting's own rate."""
    learned = {k: v.requires_grad_() for k, v in weighting.parameters(state).items()}
    optimizer = torch.optim.Adam(learned.values(), lr=weighting.learning_rate)
    for ids in batches:
        optimizer.zero_grad()
        weighting.combine(learned, losses[ids], ids, state).backward()
        optimizer.step()
    return {k: v.detach() for k, v in learned.items()}


@pytest.mark.parametrize(("kind", "factor"), [("classification", 2.0), ("regression", 1.0)])
def test_the_optimum_is_the_one_of_kendall_et_al(kind: str, factor: float) -> None:
    groups = torch.arange(4) % 2
    losses = torch.tensor([0.3, 2.0, 0.3, 2.0], dtype=torch.float64)
    weighting = uncertainty()
    state = weighting.fit(None, groups, kind=kind)
    learned = adam(weighting, state, losses, [torch.arange(4)] * 800)
    expected = torch.log(factor * losses[:2])
    torch.testing.assert_close(learned["log_variance"], expected, atol=1e-4, rtol=0)


def effective_share(weighting: Uncertainty, steps: int, n: int = 30_000) -> float:
    """Effective sample size over N of a bank of three noise levels, 12 tasks a step."""
    random = torch.Generator().manual_seed(0)
    groups = torch.arange(n) % 3
    noise = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)[groups]
    losses = noise * (0.5 + torch.rand(n, generator=random, dtype=torch.float64))
    batches = [torch.randint(n, (12,), generator=random) for _ in range(steps)]
    state = weighting.fit(None, groups)
    learned = adam(weighting, state, losses, batches)
    cross = torch.zeros((), dtype=torch.float64).expand(n, 1)
    weights = weighting.weights({**state, **learned}, cross, cross[0])
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    return float(1 / weights.square().sum()) / n


def test_group_weights_leave_uniform_on_a_bank_of_unequal_noise() -> None:
    assert effective_share(uncertainty(), steps=0) == pytest.approx(1)
    assert effective_share(uncertainty(), steps=400) < 0.6


def test_task_weights_stay_uniform_when_each_task_is_hardly_ever_visited() -> None:
    assert effective_share(uncertainty(per="task"), steps=400) > 0.99
    visited_often = effective_share(uncertainty(per="task"), steps=2000, n=60)
    assert visited_often < 0.6


def blobs(sizes: tuple[int, ...] = (5, 9, 6)) -> Bank:
    random = torch.Generator().manual_seed(1)
    centres = 10 * torch.eye(len(sizes), dtype=torch.float64)
    rows = centres.repeat_interleave(torch.tensor(sizes), 0)
    rows = rows + 0.1 * torch.randn(rows.shape, generator=random, dtype=torch.float64)
    return Bank(rows @ rows.T, bank_signatures=rows)


def test_clusters_of_signatures_serve_where_there_are_no_groups() -> None:
    bank = blobs()
    group = uncertainty(clusters=3).fit(bank, NO_GROUPS[:20])["group"]
    assert [len(part.unique()) for part in group.split((5, 9, 6))] == [1, 1, 1]
    assert len(group.unique()) == 3
    again = uncertainty(clusters=3).fit(bank, NO_GROUPS[:20])["group"]
    assert torch.equal(group, again)


def test_there_are_no_more_clusters_than_different_signatures() -> None:
    rows = torch.eye(2, dtype=torch.float64).repeat(10, 1)
    state = uncertainty(clusters=10).fit(Bank(rows @ rows.T, bank_signatures=rows), NO_GROUPS[:20])
    assert len(state["log_variance"]) == 2


def test_tasks_without_a_group_form_one_of_their_own() -> None:
    group = uncertainty().fit(None, torch.tensor([7, -1, 7, 3, -1]))["group"]
    assert group.tolist() == [2, 0, 2, 1, 0]


def test_clusters_need_a_gram() -> None:
    with pytest.raises(PluginError, match="needs groups in the data, or a kernel"):
        uncertainty().fit(None, NO_GROUPS)


def test_only_group_weights_may_need_a_gram() -> None:
    assert uncertainty().needs_gram
    assert not uncertainty(per="task").needs_gram


def test_combine_keeps_the_dtype_of_the_losses() -> None:
    weighting = uncertainty()
    state = weighting.fit(None, torch.arange(4) % 2)
    value = weighting.combine(weighting.parameters(state), torch.ones(4), torch.arange(4), state)
    assert value.dtype == torch.float32


# -- broken specimens: the laws reject them --------------------------------------------


class Specimen(laws.TaskWeighting):
    """A sound weighting, v(D) itself, for the specimens below to break in one way each."""

    def fit(self, gram, groups, *, kind="classification"):
        return gram

    def weights(self, state, cross, self_):
        return cross.clone()


class Transposed(Specimen):
    def weights(self, state, cross, self_):
        return cross.T


class NotFinite(Specimen):
    def weights(self, state, cross, self_):
        return cross / 0


class SinglePrecision(Specimen):
    def weights(self, state, cross, self_):
        return cross.float()


class ClaimsASum(Specimen):
    sums_to_one = True


class HidesNegatives(Specimen):
    def weights(self, state, cross, self_):
        return cross - 0.5


class ClaimsNoTarget(Specimen):
    target_specific = False


class FavoursTheFirst(Specimen):
    def weights(self, state, cross, self_):
        return cross * torch.linspace(1, 0.5, len(cross), dtype=cross.dtype)[:, None]


class SeesOtherTargets(Specimen):
    def weights(self, state, cross, self_):
        return cross / cross.sum()


class WritesIntoCross(Specimen):
    def weights(self, state, cross, self_):
        return cross.mul_(2)


class ReportsWords(Specimen):
    def report(self, state):
        return {"solver": "mine"}


class NeverPositive(Specimen):
    def weights(self, state, cross, self_):
        return cross - 1


class Repels(Specimen):
    def weights(self, state, cross, self_):
        return 1 - cross


class Learned(Specimen):
    """A sound learned one."""

    learned = True

    def parameters(self, state):
        return {"s": torch.zeros(state.n_tasks)}

    def combine(self, parameters, losses, bank_ids, state):
        return (torch.exp(-parameters["s"][bank_ids]) * losses).sum()


class LearnsNothing(Learned):
    def parameters(self, state):
        return {}


class IgnoresItsParameters(Learned):
    def combine(self, parameters, losses, bank_ids, state):
        return losses.mean()


class IgnoresSomeTasks(Learned):
    def combine(self, parameters, losses, bank_ids, state):
        return super().combine(parameters, losses[1:], bank_ids[1:], state)


class CutsTheGraph(Learned):
    def combine(self, parameters, losses, bank_ids, state):
        s = parameters["s"][bank_ids]
        return (torch.exp(-s) * losses.detach() + s * losses.mean()).sum()


class NotAScalar(Learned):
    def combine(self, parameters, losses, bank_ids, state):
        return parameters["s"][bank_ids] * losses


BROKEN = [
    (laws.check_shape, Transposed, "shape"),
    (laws.check_shape, NotFinite, "finite"),
    (laws.check_shape, SinglePrecision, "float64"),
    (laws.check_declarations, ClaimsASum, "sums_to_one"),
    (laws.check_declarations, HidesNegatives, "may_be_negative"),
    (laws.check_declarations, ClaimsNoTarget, "target_specific"),
    (laws.check_permutation, FavoursTheFirst, "permutation"),
    (laws.check_identical_tasks, FavoursTheFirst, "identical tasks"),
    (laws.check_columns, SeesOtherTargets, "columns"),
    (laws.check_recalls_itself, Repels, "ranks itself first"),
    (laws.check_learned, LearnsNothing, "not empty"),
    (laws.check_learned, IgnoresItsParameters, "depends on s"),
    (laws.check_learned, IgnoresSomeTasks, "every entry of s"),
    (laws.check_learned, CutsTheGraph, "finite differences"),
    (laws.check_learned, NotAScalar, "a scalar"),
    (laws.check_keeps_all, NeverPositive, "M >= N"),
    (laws.check_untouched, WritesIntoCross, "cross changed"),
    (laws.check_report, ReportsWords, "expected a number"),
]


def test_every_law_has_a_specimen_that_breaks_it() -> None:
    every = {name for name in vars(laws) if name.startswith("check_")}
    assert {check.__name__ for check, *_ in BROKEN} == every - {"check_weighting", "check_all"}


@pytest.mark.parametrize(
    ("check", "specimen", "law"), BROKEN, ids=lambda value: getattr(value, "__name__", None)
)
def test_laws_reject(check, specimen: type[Specimen], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check(specimen(), laws.gaussian_case())


@pytest.mark.parametrize("specimen", [Specimen, Learned])
def test_laws_accept_the_sound_specimens(specimen: type[Specimen]) -> None:
    laws.check_weighting(specimen(), laws.gaussian_case())
