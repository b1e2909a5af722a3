"""Built-in task kernels: formulas, widths, refusals, and the laws."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from metaforge.errors import DataError, NumericError, PluginError
from metaforge.tasks import TaskBatch
from metaforge.testing import kernels as laws
from metaforge_kernels import auto
from metaforge_kernels.distances import squared_distances
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.laplace import Laplace
from metaforge_kernels.linear import Linear
from metaforge_kernels.options import GaussianOptions, LaplaceOptions, LinearOptions

KERNELS = {
    "gaussian": lambda **o: Gaussian(GaussianOptions(**o)),
    "laplace": lambda **o: Laplace(LaplaceOptions(**o)),
    "linear": lambda **o: Linear(LinearOptions(**o)),
}


def classification(n: int = 12, ways: int = 3, shots: int = 2, dtype=torch.float32) -> TaskBatch:
    random = torch.Generator().manual_seed(3)
    y = torch.arange(ways).repeat_interleave(shots).expand(n, -1)
    centres = torch.randn(n, ways, 5, generator=random, dtype=dtype) + 1
    support, query = (
        centres.repeat_interleave(shots, 1)
        + 0.3 * torch.randn(n, ways * shots, 5, generator=random, dtype=dtype)
        for _ in range(2)
    )
    return TaskBatch(support, y, query, y)


def regression(n: int = 12, points: int = 9) -> TaskBatch:
    random = torch.Generator().manual_seed(4)
    x = 4 * torch.rand(n, 2 * points, 1, generator=random) - 2
    slope, bend = torch.randn(2, n, 1, 1, generator=random)
    y = slope * x + bend * x.square()
    return TaskBatch(x[:, :points], y[:, :points], x[:, points:], y[:, points:])


def signatures(n: int = 20, p: int = 5, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(n, p, generator=random, dtype=torch.float64)


# -- laws ----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"signature": "all"},
        {"embedding": "fourier", "frequencies": 32},
        {"embedding": "joint", "frequencies": 32},
        {"embedding": "moments"},
        {"embedding": "classes"},
        {"embedding": "set"},
        {"embedding": "set", "signature": "all", "width": 0.3},
        {"embedding": "contrast"},
        {"embedding": "learned", "steps": 5, "dimension": 4},
        {"normalize": False},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "defaults",
)
def test_laws_on_classification(kernel: str, options: dict) -> None:
    laws.check_kernel(lambda: KERNELS[kernel](**options), classification())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "embedding", ["auto", "mean", "moments", "fourier", "joint", "set", "contrast", "learned"]
)
def test_laws_on_regression(kernel: str, embedding: str) -> None:
    laws.check_kernel(lambda: KERNELS[kernel](embedding=embedding), regression())


@pytest.mark.parametrize(
    "options", [{"gamma": 3.0}, {"sigma": 0.5}, {"bandwidth": "median", "scale": 4.0}]
)
def test_laws_for_each_width_of_the_gaussian(options: dict) -> None:
    laws.check_kernel(lambda: KERNELS["gaussian"](**options), classification())


# -- formulas ------------------------------------------------------------------------


def test_gaussian_widths_are_what_they_say() -> None:
    a, b = signatures(6), signatures(4, seed=1)
    squared = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
    for options, exponent in [
        ({"gamma": 50.0}, 50 * squared),
        ({"gamma": 0.3}, 0.3 * squared),
        ({"sigma": 2.0}, squared / 4),
    ]:
        found = KERNELS["gaussian"](**options).gram(a, b)
        torch.testing.assert_close(found, torch.exp(-exponent), rtol=1e-11, atol=0)


def test_laplace_and_linear_formulas() -> None:
    a, b = signatures(6), signatures(4, seed=1)
    distance = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    laplace = KERNELS["laplace"](sigma=0.7).gram(a, b)
    torch.testing.assert_close(laplace, torch.exp(-distance / 0.7), rtol=1e-11, atol=0)
    linear = KERNELS["linear"](c=0.5).gram(a, b)
    torch.testing.assert_close(linear, a @ b.T + 0.5)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_median_bandwidth_gives_exp_minus_scale_at_the_median(kernel: str, scale: float) -> None:
    tasks = classification(n=9)  # 36 pairs: the lower median is a pair's own distance
    made = KERNELS[kernel](bandwidth="median", scale=scale)
    made.fit(tasks, torch.Generator())
    found = made.signature(tasks)
    gram = made.gram(found, found)
    pairs = gram[tuple(torch.triu_indices(9, 9, offset=1))].sort(descending=True).values
    assert pairs[17].item() == pytest.approx(torch.tensor(-scale).exp().item(), rel=1e-6)
    (name, value), *_ = made.state().items()
    assert name == {"gaussian": "gamma", "laplace": "sigma"}[kernel]
    assert value > 0


def test_repeated_tasks_do_not_shrink_the_median() -> None:
    tasks = classification(n=6)
    repeated = tasks[[0, 1, 2, 3, 4, 5, *[0] * 30]]
    kernel = KERNELS["gaussian"](bandwidth="median")
    kernel.fit(repeated, torch.Generator())
    assert 0 < kernel.gamma < 1e6


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("embedding", ["mean", "moments", "classes", "fourier", "joint", "set"])
def test_median_of_equal_signatures_is_an_error_with_advice(kernel: str, embedding: str) -> None:
    with pytest.raises(NumericError, match=f"{kernel}.*all equal.*take other bank tasks"):
        KERNELS[kernel](embedding=embedding).fit(equal_tasks(), torch.Generator())


@pytest.mark.parametrize("kernel", KERNELS)
def test_contrast_of_equal_tasks_is_an_error_with_advice(kernel: str) -> None:
    with pytest.raises(NumericError, match=f"{kernel}.*nothing that tells the 300 bank tasks"):
        KERNELS[kernel](embedding="contrast").fit(equal_tasks(), torch.Generator())


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, "contrast"),
        ({"bandwidth": "median", "scale": 4.0}, "contrast"),
        ({"signature": "all"}, "mean"),
        ({"gamma": 50.0}, "mean"),
        ({"sigma": 2.0}, "mean"),
    ],
)
def test_auto_is_contrast_where_a_width_is_fitted_to_it(options: dict, taken: str) -> None:
    found, same = (
        KERNELS["gaussian"](embedding=embedding, **options) for embedding in ("auto", taken)
    )
    for kernel in (found, same):
        kernel.fit(classification(), torch.Generator())
    assert found.state() == same.state() | {"embedding": taken}
    torch.testing.assert_close(
        found.signature(classification()), same.signature(classification()), rtol=0, atol=0
    )


def test_auto_is_asked_before_its_fit_where_it_is_mean_anyhow() -> None:
    tasks, mean = classification(), KERNELS["gaussian"](embedding="mean", gamma=50.0)
    found = KERNELS["gaussian"](gamma=50.0).signature(tasks)
    torch.testing.assert_close(found, mean.signature(tasks), rtol=0, atol=0)
    for kernel, asked in ((KERNELS["gaussian"](), tasks), (KERNELS["linear"](), regression())):
        with pytest.raises(PluginError, match="auto has to be fitted"):
            kernel.signature(asked)


def test_auto_is_mean_where_contrast_cannot_be_or_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = classification()
    alone = replace(tasks, query_x=None, query_y=None)
    many = tasks[[0] * 2000]
    noise = torch.randn(2, *many.support_x.shape, generator=torch.Generator().manual_seed(0))
    alike = replace(many, support_x=noise[0], query_x=noise[1])
    assert taken_by_auto(tasks) == "contrast"
    assert taken_by_auto(alone) == "mean"
    assert taken_by_auto(alike) == "mean"
    assert KERNELS["linear"]().state() == {}
    monkeypatch.setattr(auto, "_WIDEST", 4)
    assert taken_by_auto(tasks) == "mean"
    assert taken_by_auto(regression()) == "joint"


def taken_by_auto(tasks: TaskBatch) -> str | float:
    made = KERNELS["gaussian"]()
    made.fit(tasks, torch.Generator().manual_seed(0))
    return made.state()["embedding"]


@pytest.mark.parametrize("side", ["support_x", "query_x"])
def test_contrast_of_features_whose_squares_overflow_is_told_of_tasks(side: str) -> None:
    tasks = classification(dtype=torch.float64)
    huge = getattr(tasks, side).clone()
    huge[7] *= 1e200
    with pytest.raises(DataError, match=r"gaussian.*task \d+ is not finite.*huge"):
        KERNELS["gaussian"](normalize=False).fit(replace(tasks, **{side: huge}), torch.Generator())


def test_learned_on_equal_tasks_is_an_error_with_advice() -> None:
    with pytest.raises(NumericError, match=r"gaussian.*all equal.*take other bank tasks"):
        KERNELS["gaussian"](embedding="learned", steps=5).fit(equal_tasks(), torch.Generator())


def equal_tasks() -> TaskBatch:
    """More than are read at a time, and numbers that no column repeats without rounding."""
    return classification()[[0] * 300]


def test_a_bank_of_one_task_needs_no_width() -> None:
    made = KERNELS["gaussian"](scale=4.0)
    made.fit(classification()[[0]], torch.Generator())
    assert made.gamma == 4.0


# -- distances -----------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("p", [1, 7, 640])
def test_equal_rows_are_at_distance_exactly_zero(p: int, offset: float) -> None:
    rows = signatures(30, p) + offset
    again = rows[torch.arange(60) % 30]
    distances = squared_distances(rows, again)
    assert distances[torch.arange(30), torch.arange(30)].eq(0).all()
    assert distances[torch.arange(30), torch.arange(30, 60)].eq(0).all()
    assert (distances >= 0).all()
    for kernel in ("gaussian", "laplace"):
        gram = KERNELS[kernel](sigma=1.0).gram(rows, again)
        assert gram.diagonal().eq(1).all()


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6, 1e-8])
def test_near_rows_keep_their_digits(gap: float) -> None:
    rows = signatures(10, 64)
    moved = rows + gap * signatures(10, 64, seed=1)
    exact = (rows - moved).square().sum(1)
    found = squared_distances(rows, moved).diagonal()
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=0)


def test_many_equal_rows_fit_in_chunks() -> None:
    rows = signatures(1, 300).expand(200, -1)
    assert squared_distances(rows, rows).eq(0).all()


def test_blocks_of_distances_are_those_of_every_pair() -> None:
    """1500 rows are four blocks; near rows and equal ones stand at the blocks' ends."""
    a, b = signatures(1500, 64), signatures(300, 64, seed=1)
    b[0], b[1] = a[435], a[436] + 1e-5 * signatures(1, 64, seed=2)[0]
    found = squared_distances(a, b)
    every = torch.stack([(a - row).square().sum(1) for row in b], 1)
    torch.testing.assert_close(found, every, rtol=1e-8, atol=0)
    assert found[435, 0] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_signature_leaves_its_tasks_as_they_are(dtype: torch.dtype) -> None:
    tasks = classification()
    tasks = replace(tasks, support_x=tasks.support_x.to(dtype) * 3)
    before = tasks.support_x.clone()
    KERNELS["linear"](embedding="mean").signature(tasks)
    assert torch.equal(tasks.support_x, before)


# -- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("gaussian", {"gamma": 1.0, "sigma": 1.0}, "gamma and sigma each set the width"),
        ("gaussian", {"sigma": 1.0, "bandwidth": "median"}, "sigma and bandwidth each"),
        ("gaussian", {"gamma": 1.0, "scale": 2.0}, "scale belongs to bandwidth: median"),
        ("gaussian", {"gamma": 0.0}, "greater than 0"),
        ("gaussian", {"sigma": math.inf}, "finite number"),
        ("gaussian", {"sigma": 1e-200}, "1e-200 is out of range"),
        ("gaussian", {"scale": 1e300}, "out of range"),
        ("gaussian", {"bandwidth": 0.0}, "should be 'median'"),
        ("gaussian", {"embedding": "fourier", "width": 0.0}, "greater than 0"),
        ("gaussian", {"embedding": "set", "width": math.inf}, "finite number"),
        ("laplace", {"sigma": 0.0}, "greater than 0"),
        ("laplace", {"sigma": 1.0, "bandwidth": "median"}, "sigma and bandwidth each"),
        ("laplace", {"sigma": 1.0, "scale": 2.0}, "scale belongs to bandwidth: median"),
        ("linear", {"c": -1.0}, "greater than or equal to 0"),
        ("linear", {"embedding": "mean", "width": 2.0}, "does not read width"),
        ("linear", {"embedding": "joint", "signature": "all"}, "take signature: support"),
        ("linear", {"gama": 1.0}, "gama"),
    ],
)
def test_bad_options_are_named(kernel: str, options: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        KERNELS[kernel](**options)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_a_median_kernel_asked_before_its_fit_says_so(kernel: str) -> None:
    with pytest.raises(PluginError, match=f"{kernel}.*after fit"):
        KERNELS[kernel](bandwidth="median").gram(signatures(), signatures())


# -- broken specimens: the laws reject them --------------------------------------------


class Specimen(laws.TaskKernel):
    """A sound kernel, for the specimens below to break in one way each."""

    name = "specimen"

    def signature(self, tasks: TaskBatch) -> Tensor:
        mask = tasks.support_mask[..., None] > 0
        x = torch.where(mask, tasks.support_x, 0.0).double()
        return x.sum(1) / mask.sum(1)

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-squared_distances(a, b))

    def diag(self, a: Tensor) -> Tensor:
        return torch.ones(len(a), dtype=torch.float64)


class Asymmetric(Specimen):
    def gram(self, a, b):
        return torch.exp(-squared_distances(a, 0.9 * b))


class Indefinite(Specimen):
    def gram(self, a, b):
        return 1 - squared_distances(a, b)


class NotFinite(Specimen):
    def gram(self, a, b):
        return squared_distances(a, b).sqrt().reciprocal()


class SinglePrecision(Specimen):
    def gram(self, a, b):
        return super().gram(a, b).float()


class CentredOnItsTargets(Specimen):
    def gram(self, a, b):
        return super().gram(a - b.mean(0), b - b.mean(0))


class WrongDiagonal(Specimen):
    def diag(self, a):
        return 2 * super().diag(a)


class WrongFeatures(Specimen):
    def features(self, signatures):
        return signatures


class SinglePrecisionSignature(Specimen):
    def signature(self, tasks):
        return super().signature(tasks).float()


class CentredOnItsBatch(Specimen):
    def signature(self, tasks):
        found = super().signature(tasks)
        return found - found.mean(0)


class ReadsOrder(Specimen):
    def signature(self, tasks):
        return tasks.support_x[:, 0].double()


class ReadsPadding(Specimen):
    def signature(self, tasks):
        return tasks.support_x.double().mean(1)


class MultipliesByTheMask(Specimen):
    """Right wherever padding is finite."""

    def signature(self, tasks):
        kept = tasks.support_x.double() * tasks.support_mask[..., None]
        return kept.sum(1) / tasks.support_mask.sum(1, keepdim=True)


class ReadsNumbering(Specimen):
    def signature(self, tasks):
        return (tasks.support_x * tasks.support_y[..., None]).double().mean(1)


class ReadsQueries(Specimen):
    def signature(self, tasks):
        found = super().signature(tasks)
        return found if tasks.query_x is None else found + tasks.query_x.double().mean(1)


class ClaimsToReadQueries(Specimen):
    reads = "all"


class Random(Specimen):
    def fit(self, sample, generator):
        self.shift = torch.rand((), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        Random.count = getattr(Random, "count", 0) + 1
        self.shift += Random.count

    def gram(self, a, b):
        return super().gram(a, b) * self.shift


class ScalesItsTasks(Specimen):
    def signature(self, tasks):
        tasks.support_x.mul_(1 / tasks.support_x.abs().max())
        return super().signature(tasks)


class ComparesNeighbours(Specimen):
    """The same forwards and backwards."""

    def signature(self, tasks):
        x = tasks.support_x.double() * tasks.support_mask[..., None]
        return (x[:, 1:] * x[:, :-1]).sum(1)


class Turns(Specimen):
    """Counts classes round in a circle: the same from wherever one starts, not the other way."""

    def signature(self, tasks):
        ways = torch.arange(tasks.outputs)
        own = (tasks.support_y[..., None] == ways).double() * tasks.support_mask[..., None]
        means = own.mT @ tasks.support_x.double()
        a, b, c = means[:, 0], means[:, 1], means[:, 2]
        turn = a[:, [0]] * b[:, [1]] + b[:, [0]] * c[:, [1]] + c[:, [0]] * a[:, [1]]
        back = a[:, [1]] * b[:, [0]] + b[:, [1]] * c[:, [0]] + c[:, [1]] * a[:, [0]]
        return turn - back


class Quartic(Specimen):
    """``exp(-d^4)`` is a kernel on no space; tasks far apart, or all alike, do not show it."""

    def gram(self, a, b):
        distance = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        return (-distance.square().square()).exp()

    def diag(self, a):
        return torch.ones(len(a), dtype=torch.float64)


class Unpicklable(Specimen):
    def fit(self, sample, generator):
        self.gamma = lambda: 1.0


def broken(check, specimen: type[Specimen], law: str):
    return pytest.param(check, specimen, law, id=specimen.__name__)


def on_gram(check):
    return lambda make, tasks: check(make(), signatures(), signatures(7, seed=1))


def on_columns(make, tasks):
    laws.check_columns(make(), signatures(), signatures(7, seed=1))


def on_tasks(check):
    return lambda make, tasks: check(laws.fitted(make, tasks), tasks)


def on_itself(make, tasks):
    laws.check_positive_semidefinite(make(), signatures())


def on_points_between(make, tasks):
    laws.check_positive_semidefinite(make(), laws.BANKS["in between"](signatures(8)))


def on_zero_distances(make, tasks):
    laws.check_gram(make(), signatures(), signatures())


@pytest.mark.parametrize(
    ("check", "specimen", "law"),
    [
        broken(on_gram(laws.check_gram), Asymmetric, "symmetric"),
        broken(on_itself, Indefinite, "positive semi-definite"),
        broken(on_zero_distances, NotFinite, "gram: finite"),
        broken(on_gram(laws.check_gram), SinglePrecision, "gram: float64"),
        broken(on_columns, CentredOnItsTargets, "row j of b alone"),
        broken(on_gram(laws.check_gram), WrongDiagonal, "diag"),
        broken(on_gram(laws.check_gram), WrongFeatures, "features"),
        broken(on_tasks(laws.check_signature), SinglePrecisionSignature, "signature: float64"),
        broken(on_tasks(laws.check_signature), CentredOnItsBatch, "does not depend on the batch"),
        broken(on_tasks(laws.check_sample_order), ReadsOrder, "order of samples"),
        broken(on_tasks(laws.check_padding), ReadsPadding, "masked samples"),
        broken(on_tasks(laws.check_padding), MultipliesByTheMask, "masked samples"),
        broken(on_tasks(laws.check_label_numbering), ReadsNumbering, "numbering of classes"),
        broken(on_tasks(laws.check_reads), ReadsQueries, "reads: support"),
        broken(on_tasks(laws.check_reads), ClaimsToReadQueries, "reads: all"),
        broken(laws.check_deterministic, Random, "deterministic"),
        broken(on_tasks(laws.check_signature), ScalesItsTasks, "left as they are"),
        broken(on_tasks(laws.check_sample_order), ComparesNeighbours, "order of samples"),
        broken(on_tasks(laws.check_label_numbering), Turns, "numbering of classes"),
        broken(on_points_between, Quartic, "positive semi-definite"),
    ],
)
def test_laws_reject(check, specimen: type[Specimen], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check(specimen, classification())


def test_laws_reject_what_cannot_be_pickled() -> None:
    kernel = laws.fitted(Unpicklable, classification())
    with pytest.raises(AssertionError, match="picklable"):
        laws.check_picklable(kernel, classification())


def test_laws_accept_the_sound_specimen() -> None:
    laws.check_kernel(Specimen, classification())
