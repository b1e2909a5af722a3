"""Phase 2: the bank's matrix, the kept tasks, their statistics, and what is shown to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from metaforge import memory, scoring
from metaforge.contracts import TaskKernel
from metaforge.errors import DataError, NumericError, PluginError
from metaforge.gram import FIT_TASKS, KernelGram, bank_gram
from metaforge.scoring import (
    Scorer,
    TargetScores,
    agreement,
    effective_sample_size,
    keep,
    raw_statistics,
)
from metaforge.tasks import TaskBatch, TaskShape, TaskSource
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.laplace import Laplace
from metaforge_kernels.linear import Linear
from metaforge_kernels.options import GaussianOptions, LaplaceOptions, LinearOptions
from metaforge_weightings.options import TasmlOptions, UniformOptions
from metaforge_weightings.tasml import Tasml
from metaforge_weightings.uniform import Uniform

SPLITS = {"train": 0, "val": 1, "test": 2}


class Blobs(TaskSource):
    """Tasks of three kinds, which differ in where their samples lie."""

    shape = TaskShape("classification", (4,), 2, 3, 3)
    fingerprint = "blobs"
    group_names = ("a", "b", "c")

    def __init__(self, broken: int | None = None, side: str = "support_x"):
        self.broken, self.side = broken, side

    def batch(self, split, ids, view="input"):
        ids = torch.as_tensor(list(ids))
        tasks = [self._task(split, int(i)) for i in ids]
        y = torch.tensor([0, 0, 0, 1, 1, 1]).expand(len(ids), -1)
        support, query = (torch.stack(parts) for parts in zip(*tasks, strict=True))
        if view == "input":  # a kernel that is fed the input instead of the features shows
            support, query = 0 * support, 0 * query
        return TaskBatch(support, y, query, y, task_ids=ids)

    def _task(self, split: str, number: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(1000 * SPLITS[split] + number)
        centre = 2.0 * torch.eye(4)[number % 3] + 0.3 * torch.randn(4, generator=random)
        samples = centre + 0.3 * torch.randn(2, 6, 4, generator=random)
        if split == "train" and number == self.broken:
            samples[("support_x", "query_x").index(self.side)] = torch.nan
        return samples[0], samples[1]

    def groups(self, split, ids):
        return torch.as_tensor(list(ids)) % 3


def gaussian(**options) -> Gaussian:
    return Gaussian(GaussianOptions(**options))


def tasml(value: float | str = "n^-1/2") -> Tasml:
    return Tasml(TasmlOptions.model_validate({"lambda": value}))


def scorer(kernel: TaskKernel, n_tasks: int = 60) -> Scorer:
    gram = bank_gram(Blobs(), kernel, n_tasks, torch.Generator())
    weighting = tasml()
    return Scorer(weighting, weighting.fit(gram, torch.full((n_tasks,), -1)), gram, n_tasks)


# -- the matrix ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 64, 200])
def test_tiles_make_the_whole_matrix(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaforge.gram._TILE", 32)
    rows = torch.randn(n, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = gaussian(gamma=0.2)
    gram = KernelGram(kernel, rows)
    whole = kernel.gram(rows, rows)
    dense = gram.dense()
    torch.testing.assert_close(dense, whole, rtol=1e-12, atol=1e-15)
    assert dense.is_contiguous()
    assert dense.data_ptr() != gram.dense().data_ptr()
    torch.testing.assert_close(gram.diag(), whole.diagonal())
    vectors = torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(gram.matvec(vectors), whole @ vectors)
    torch.testing.assert_close(gram.matvec(vectors[:, 0]), whole @ vectors[:, 0])
    torch.testing.assert_close(gram.block(slice(0, n // 2), slice(None)), whole[: n // 2])
    assert gram.features() is None
    single = gram.dense(torch.float32)
    assert single.dtype == torch.float32
    assert torch.equal(single, dense.float())  # rounded from float64, tile by tile


def test_products_compute_each_tile_of_a_triangle_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaforge.gram._TILE", 32)
    rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = KernelGram(gaussian(gamma=0.2), rows)
    whole, asked = gram.dense(), []
    block = gram.block
    monkeypatch.setattr(gram, "block", lambda *at: asked.append(at) or block(*at))
    vectors = [rows[:, :3], rows[:, 0], 0 * rows]
    for found, vector in zip(gram.products(vectors), vectors, strict=True):
        torch.testing.assert_close(found, whole @ vector)
    assert len(asked) == 7 * 8 / 2


def test_a_linear_gram_multiplies_through_its_features() -> None:
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = KernelGram(Linear(LinearOptions()), rows)
    vector = torch.ones(20, dtype=torch.float64)
    torch.testing.assert_close(gram.matvec(vector), gram.dense() @ vector)


def test_signatures_that_cannot_fit_are_refused_once_their_width_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 10**4)
    with pytest.raises(DataError, match=r"signatures of \d+ numbers.*bank.size: 3000 tasks takes"):
        bank_gram(Blobs(), gaussian(gamma=50.0), 3000, torch.Generator().manual_seed(0))


def test_a_matrix_that_cannot_fit_is_refused_with_what_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gram = KernelGram(gaussian(gamma=50.0), torch.zeros(3000, 2, dtype=torch.float64))
    monkeypatch.setattr(memory, "available", lambda device: 10**7)
    with pytest.raises(DataError) as caught:
        gram.dense()
    for part in ("gaussian", "bank.size: 3000", "0.1 GB", "0.0 GB are free", "linear", "uniform"):
        assert part in str(caught.value)
    monkeypatch.setattr(memory, "available", lambda device: None)
    assert gram.dense().shape == (3000, 3000)


def test_memory_is_known_here_and_less_than_a_petabyte() -> None:
    free = memory.available(torch.device("cpu"))
    assert free is None or 1e6 < free < 1e15


def test_a_containers_limit_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.available(torch.device("cpu"))
    (tmp_path / "memory.max").write_text("9000\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 4000\ninactive_file 1000\n")
    assert memory.available(torch.device("cpu")) == 5000
    (tmp_path / "memory.max").write_text("max\n")
    found = memory.available(torch.device("cpu"))
    assert (found is None) == (machine is None)
    assert found is None or found > 5000


# -- what is shown -------------------------------------------------------------------


class Watched(Gaussian):
    """Remembers every batch of tasks it is shown."""

    def __init__(self, options):
        super().__init__(options)
        self.seen: list[TaskBatch] = []

    def fit(self, sample, generator):
        self.seen.append(sample)
        super().fit(sample, generator)

    def signature(self, tasks):
        self.seen.append(tasks)
        return super().signature(tasks)


@pytest.mark.parametrize("reads", ["support", "all"])
def test_kernels_are_shown_no_query_label_and_under_support_no_query(reads: str) -> None:
    kernel = Watched(GaussianOptions(signature=reads, bandwidth="median"))
    scorer(kernel).score(Blobs(), "test", range(5), 10)
    fitted, *asked = kernel.seen
    assert fitted.query_y is not None  # the bank's tasks are training data, whole
    assert len(asked) >= 3  # the width, the bank, the targets
    for tasks in asked:
        assert tasks.query_y is None
        assert (tasks.query_x is None) == (reads == "support")


@pytest.mark.parametrize(("reads", "changes"), [("support", False), ("all", True)])
def test_perturbed_queries_change_scores_only_under_all(reads: str, changes: bool) -> None:
    made = scorer(gaussian(signature=reads, bandwidth="median"))
    targets = Blobs().batch("test", range(5), "features")
    perturbed = replace(targets, query_x=targets.query_x + 1)
    assert torch.equal(made.alphas(targets), made.alphas(perturbed)) != changes


def test_the_kernel_is_fitted_on_at_most_a_thousand_bank_tasks() -> None:
    kernel = Watched(GaussianOptions())
    gram = bank_gram(Blobs(), kernel, FIT_TASKS + 30, torch.Generator())
    assert gram.n_tasks == FIT_TASKS + 30
    assert kernel.seen[0].task_ids.tolist() == list(range(FIT_TASKS))


@pytest.mark.parametrize("embedding", ["auto", "mean", "fourier", "learned"])
@pytest.mark.parametrize("side", ["support_x", "query_x"])
def test_features_that_are_not_finite_name_the_task(embedding: str, side: str) -> None:
    with pytest.raises(DataError, match=r"gaussian.*features of task 17 is not finite \(1 of the"):
        bank_gram(Blobs(17, side), gaussian(embedding=embedding), 40, torch.Generator())


def test_signatures_that_are_not_finite_name_the_task() -> None:
    with pytest.raises(DataError, match=r"gaussian.*signature of task 1017 is not finite"):
        bank_gram(Blobs(FIT_TASKS + 17), gaussian(), FIT_TASKS + 40, torch.Generator())


# -- scores --------------------------------------------------------------------------


def test_scores_recall_the_targets_own_kind() -> None:
    made = scorer(gaussian(bandwidth="median"))
    found = made.score(Blobs(), "test", range(9), 10)
    assert found.ids.shape == found.weights.shape == (9, 10)
    groups = Blobs().groups("train", range(60)).numpy()
    shares = [found.statistics(t, t % 3, groups)["own_group"] for t in range(9)]
    assert np.mean(shares) > 0.9


def test_blocks_of_targets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    made = scorer(gaussian(bandwidth="median"))
    whole = made.score(Blobs(), "test", range(9), 10)
    monkeypatch.setattr(scoring, "_TARGETS", 4)
    parts = made.score(Blobs(), "test", range(9), 10)
    assert np.array_equal(whole.ids, parts.ids)
    np.testing.assert_allclose(whole.weights, parts.weights, rtol=1e-9)
    np.testing.assert_allclose(whole.raw, parts.raw, rtol=1e-9)


KERNELS = {
    "gaussian": lambda: gaussian(bandwidth="median"),
    "laplace": lambda: Laplace(LaplaceOptions(bandwidth="median")),
    "linear, in feature space": lambda: Linear(LinearOptions()),
    "joint": lambda: gaussian(bandwidth="median", embedding="joint"),
}


def bits(found: TargetScores, ids: Sequence[int]) -> dict[int, tuple[bytes, ...]]:
    rows = zip(found.ids, found.weights, found.raw, strict=True)
    return {i: tuple(part.tobytes() for part in row) for i, row in zip(ids, rows, strict=True)}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_targets_scores_have_the_same_bits_in_any_company(kernel) -> None:
    made = scorer(kernel(), 203)
    whole = bits(made.score(Blobs(), "test", range(131), 50), range(131))
    shuffled = torch.randperm(131, generator=torch.Generator().manual_seed(0)).tolist()
    for ids in ([0], [130], range(3), range(7, 40), range(65), range(64, 131), shuffled):
        for target, found in bits(made.score(Blobs(), "test", ids, 50), ids).items():
            assert found == whole[target], (target, ids)


def test_blocks_of_their_own_size_would_not_have_the_same_bits() -> None:
    """So the test above can fail: this is what a solve does with fewer columns."""
    made = scorer(gaussian(bandwidth="median"), 203)
    right = torch.randn(203, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = made.state.solver.solve(right)
    widths = (1, 3, 7, 33, 99)
    alike = [torch.equal(made.state.solver.solve(right[:, :w]), whole[:, :w]) for w in widths]
    assert not all(alike)


@pytest.mark.parametrize("sigma", [1e3, 1e9], ids=["huge bandwidth", "all tasks alike"])
def test_repeated_tasks_and_a_huge_bandwidth_need_jitter_that_is_recorded(sigma: float) -> None:
    rows = torch.rand(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = gaussian(sigma=sigma)
    gram = KernelGram(kernel, rows[torch.arange(120) % 40])
    weighting = tasml(1e-17)
    state = weighting.fit(gram, torch.full((120,), -1))
    assert 0 < weighting.report(state)["jitter"] <= 1e-6
    cross = kernel.gram(gram.signatures(), rows[:3])
    assert torch.isfinite(weighting.weights(state, cross, cross[0])).all()


def test_a_weighting_that_needs_no_gram_scores_without_one() -> None:
    uniform = Uniform(UniformOptions())
    made = Scorer(uniform, uniform.fit(None, torch.full((60,), -1)), None, 60)
    found = made.score(Blobs(), "test", range(3), 60)
    np.testing.assert_allclose(found.weights, 1 / 60)
    assert found.ids.tolist() == [list(range(60))] * 3


# -- keep ----------------------------------------------------------------------------


def alphas(*columns: list[float]) -> Tensor:
    return torch.tensor(columns, dtype=torch.float64).T


def test_keep_takes_the_top_m_signed_values_normalised() -> None:
    ids, weights = keep(alphas([0.1, -5.0, 0.3, 0.2], [3.0, 1.0, 2.0, 0.0]), 2)
    assert ids.tolist() == [[2, 3], [0, 2]]
    torch.testing.assert_close(weights, alphas([0.6, 0.6], [0.4, 0.4]))


@pytest.mark.parametrize("top_m", [4, 5, 1000])
def test_m_of_n_or_more_keeps_all(top_m: int) -> None:
    ids, weights = keep(alphas([0.1, -0.2, 0.3, 0.2]), top_m)
    assert ids.tolist() == [[2, 3, 0, 1]]
    torch.testing.assert_close(weights, alphas([3 / 6], [2 / 6], [1 / 6], [0.0]))


def test_keep_leaves_negatives_where_asked() -> None:
    _, weights = keep(alphas([0.5, -0.1, 0.6]), 3, "keep")
    torch.testing.assert_close(weights, alphas([0.6], [0.5], [-0.1]))


def test_ties_go_to_the_lower_id() -> None:
    values = torch.ones(5000, 2, dtype=torch.float64)
    values[::7] = 2
    ids, _ = keep(values, 1000)
    expected = [*range(0, 5000, 7), *(i for i in range(400) if i % 7)][:1000]
    assert ids.tolist() == [expected] * 2


@pytest.mark.parametrize("values", [[-0.1, -0.2, -0.3], [0.0, 0.0, 0.0]])
def test_nothing_positive_to_keep_is_an_error(values: list[float]) -> None:
    with pytest.raises(NumericError, match=r"target 9: none of its task weights is positive"):
        keep(alphas([1.0, 1.0, 1.0], values), 2, target_ids=[4, 9])


@pytest.mark.parametrize("values", [[1.0, -0.99], [1.0, -3.0], [0.0, 0.0]])
def test_kept_weights_that_cancel_are_an_error_with_the_sums(values: list[float]) -> None:
    with pytest.raises(NumericError, match=r"target 0: .*sum to .*condition.negative: clip"):
        keep(alphas(values), 2, "keep")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_an_error(value: float) -> None:
    with pytest.raises(NumericError, match=r"target 1: .*not finite"):
        keep(alphas([1.0, 2.0], [1.0, value]), 1)


# -- agreement -----------------------------------------------------------------------


def test_agreement_is_the_error_and_the_share_of_the_top_m() -> None:
    exact = alphas([3.0, 4.0, 0.0, 0.1], [0.0, 1.0, 2.0, 3.0])
    other = alphas([3.0, 4.0, 5.0, 0.1], [0.0, 1.0, 2.0, 3.0])
    found = agreement(exact, other, 2)
    assert found.error.tolist() == pytest.approx([5 / 25.01**0.5, 0.0])
    assert found.overlap.tolist() == [0.5, 1.0]  # of tasks 1 and 0, task 1
    assert agreement(exact, other, 100).overlap.tolist() == [1.0, 1.0]


# -- statistics ----------------------------------------------------------------------


def test_statistics_of_a_target() -> None:
    alpha = alphas([0.5, -0.25, 0.5, 0.0])
    ids, weights = keep(alpha, 3)
    found = TargetScores(ids.numpy(), weights.numpy(), raw_statistics(alpha, 3).numpy())
    groups = np.array([1, 1, 0, -1])
    assert found.statistics(0, 1, groups) == {
        "alpha_min": -0.25,
        "alpha_max": 0.5,
        "alpha_sum": 0.75,
        "alpha_negative": 0.25,
        "alpha_norm": 0.75,
        "alpha_spread": 0.75,
        "effective_sample_size": pytest.approx(2.0),
        "own_group": pytest.approx(1 / 3),
        "own_group_weight": pytest.approx(0.5),
        "own_group_bank": 0.5,
    }
    assert found.statistics(0, 2, groups)["own_group_bank"] == 0.0
    without = found.statistics(0, -1, groups)
    assert without["own_group"] is without["own_group_bank"] is None
    assert without["own_group_weight"] is None


def test_effective_sample_size_is_on_absolute_values() -> None:
    assert effective_sample_size(np.array([0.25] * 4)) == pytest.approx(4)
    assert effective_sample_size(np.array([1.0, 0.0])) == pytest.approx(1)
    assert effective_sample_size(np.array([1.0, -1.0, 1.0])) == pytest.approx(3)


class OtherPrecision(Uniform):
    target_specific = True

    def weights(self, state, cross, self_):
        return torch.full_like(cross, 0.5).float()


class Transposed(OtherPrecision):
    def weights(self, state, cross, self_):
        return cross.T


@pytest.mark.parametrize("kind", [OtherPrecision, Transposed])
def test_weights_that_are_none_are_told_with_whose_they_are(kind):
    cross = torch.ones(4, 2, dtype=torch.float64)
    scores = kind().weights(None, cross, cross[0])
    with pytest.raises(PluginError, match=rf"{kind.__name__}.weights gave .* expected \[4, 2\]"):
        scoring._refuse_other_weights(kind(), scores, cross)
    scoring._refuse_other_weights(kind(), cross, cross)
