"""Signatures: what each embedding is, sees, and refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch

from metaforge.errors import NumericError, PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.contrast import Contrast
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.signatures import signature_map
from tests.plugins.test_kernels import KERNELS, classification, regression


def mean(**options) -> SignatureMap:
    return embedding(embedding="mean", **options)


def embedding(**options) -> SignatureMap:
    return signature_map(SignatureOptions(**options), "test")


def fitted(tasks: TaskBatch, **options) -> SignatureMap:
    made = embedding(**options)
    made.fit(tasks, torch.Generator().manual_seed(0))
    return made


def test_mean_is_of_normalised_features_and_not_normalised_again() -> None:
    tasks = classification()
    found = mean()(tasks)
    x = tasks.support_x.double()
    torch.testing.assert_close(found, (x / x.norm(dim=-1, keepdim=True)).mean(1))
    assert (found.norm(dim=1) < 0.999).all()
    torch.testing.assert_close(mean(normalize=False)(tasks), x.mean(1))


def test_unequal_shots_average_the_samples_that_are_there() -> None:
    tasks = classification()
    mask = tasks.support_mask.clone()
    mask[0, 3:] = 0
    found = mean()(replace(tasks, support_mask=mask))
    short = tasks[:1]
    alone = replace(
        short,
        support_x=short.support_x[:, :3],
        support_y=short.support_y[:, :3],
        support_mask=short.support_mask[:, :3],
    )
    torch.testing.assert_close(found[:1], mean()(alone))


def test_images_are_flattened() -> None:
    images = torch.rand(2, 4, 1, 3, 3)
    tasks = TaskBatch(images, torch.tensor([[0, 0, 1, 1]]).expand(2, -1))
    assert mean()(tasks).shape == (2, 9)


def test_a_zero_feature_row_stays_finite() -> None:
    tasks = classification()
    x = tasks.support_x.clone()
    x[0, 0] = 0
    assert torch.isfinite(mean()(replace(tasks, support_x=x))).all()


def test_auto_is_joint_for_regression() -> None:
    points = regression()
    auto, joint = fitted(points), fitted(points, embedding="joint")
    assert torch.equal(auto(points), joint(points))
    assert auto(points).shape == (len(points), 512)


def test_fourier_distances_estimate_the_mmd_of_a_gaussian_kernel() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 30, 3, generator=random, dtype=torch.float64)
    x[1] += 0.8
    y = torch.zeros(2, 30, 1, dtype=torch.float64)
    tasks = TaskBatch(x, y)
    made = fitted(tasks, embedding="fourier", frequencies=20000, width=0.7)
    found = (made(tasks)[0] - made(tasks)[1]).square().sum()
    rows = x.flatten(0, 1)
    z = (x - rows.mean(0)) / rows.std(0, correction=0) / 3**0.5
    kernel = torch.exp(-torch.cdist(z.flatten(0, 1), z.flatten(0, 1)).square() / (2 * 0.7**2))
    sign = torch.cat([torch.ones(30), -torch.ones(30)]).double() / 30
    assert found.item() == pytest.approx((sign @ kernel @ sign).item(), rel=0.03)


def test_joint_sees_the_relation_that_the_marginals_hide() -> None:
    x = torch.linspace(-1, 1, 11)[None, :, None]
    rising, falling = TaskBatch(x, x.clone()), TaskBatch(x, -x)
    both = TaskBatch(torch.cat([x, x]), torch.cat([x, -x]))

    def gap(**options) -> float:
        made = fitted(both, **options)
        return float((made(rising) - made(falling)).norm())

    assert gap(embedding="fourier") < 1e-12
    assert gap(embedding="joint") > 0.1


def test_joint_classification_sees_how_samples_are_grouped() -> None:
    tasks = classification()
    made = fitted(tasks, embedding="joint")
    regrouped = replace(tasks, support_y=tasks.support_y.roll(1, 1))
    renamed = replace(tasks, support_y=2 - tasks.support_y)
    assert (made(tasks) - made(regrouped)).norm(dim=1).min() > 1e-3
    torch.testing.assert_close(made(tasks), made(renamed))


def test_large_and_small_units_of_a_regression_do_not_matter() -> None:
    tasks = regression()
    scaled = replace(tasks, support_x=1e3 * tasks.support_x, support_y=1e-3 * tasks.support_y)
    torch.testing.assert_close(fitted(tasks)(tasks), fitted(scaled)(scaled), atol=1e-5, rtol=0)


def test_a_constant_column_does_no_harm() -> None:
    tasks = regression()
    constant = torch.cat([tasks.support_x, torch.full_like(tasks.support_x, 0.1)], -1)
    found = fitted(replace(tasks, support_x=constant))(replace(tasks, support_x=constant))
    assert torch.isfinite(found).all()


def test_frequencies_come_from_the_generator_alone() -> None:
    tasks = regression()
    torch.manual_seed(5)
    first = fitted(tasks)(tasks)
    torch.manual_seed(6)
    assert torch.equal(first, fitted(tasks)(tasks))
    other = embedding()
    other.fit(tasks, torch.Generator().manual_seed(1))
    assert not torch.equal(first, other(tasks))


def test_the_fit_under_support_does_not_read_queries() -> None:
    tasks = regression()
    without = fitted(tasks.without_query(), embedding="fourier")
    assert torch.equal(fitted(tasks, embedding="fourier")(tasks), without(tasks))


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_with_a_joint_embedding_is_refused(kernel: str) -> None:
    with pytest.raises(PluginError, match=rf"{kernel}.*signature: all.*take signature: support"):
        KERNELS[kernel](signature="all").fit(regression(), torch.Generator())


def test_all_without_queries_is_refused() -> None:
    with pytest.raises(PluginError, match=r"'test'.*signature: all reads query inputs"):
        mean(signature="all")(classification().without_query())


@pytest.mark.parametrize("kind", ["fourier", "joint"])
def test_an_embedding_asked_before_its_fit_says_so(kind: str) -> None:
    with pytest.raises(PluginError, match=rf"{kind} has to be fitted"):
        embedding(embedding=kind)(classification())


# -- moments and contrast ------------------------------------------------------------


def two_kinds(n: int = 400, shots: int = 2, seed: int = 0) -> tuple[TaskBatch, torch.Tensor]:
    """Tasks of two kinds, told apart by the mean of their last column alone, beside seven columns
    that vary more, from sample to sample; and the kind of each."""
    random = torch.Generator().manual_seed(seed)
    kind = torch.randint(2, (n,), generator=random)
    x = torch.randn(n, 8 * shots, 8, generator=random, dtype=torch.float64)
    x[..., :7] *= 3
    x[..., 7] = 0.2 * x[..., 7] + 0.3 * (2 * kind[:, None] - 1)
    y = torch.zeros(n, 8 * shots, dtype=torch.long)
    half = 2 * shots
    return TaskBatch(x[:, :half], y[:, :half], x[:, half:], y[:, half:], outputs=1), kind


def own_kind(signatures: torch.Tensor, kind: torch.Tensor) -> float:
    """Share of tasks whose nearest other task is of their own kind."""
    distances = torch.cdist(signatures, signatures).fill_diagonal_(float("inf"))
    return float((kind[distances.argmin(1)] == kind).double().mean())


def test_moments_are_mean_absolute_mean_and_mean_square_in_the_banks_units() -> None:
    tasks = classification()
    x = torch.nn.functional.normalize(tasks.support_x.double(), dim=-1)
    raw = torch.cat([x.mean(1), x.abs().mean(1), x.square().mean(1)], -1)
    expected = (raw - raw.mean(0)) / raw.std(0, correction=0) / raw.shape[1] ** 0.5
    torch.testing.assert_close(fitted(tasks, embedding="moments")(tasks), expected)


def contrast(tasks: TaskBatch) -> Contrast:
    made = Contrast(SignatureOptions(embedding="contrast", normalize=False), "test")
    made.fit(tasks, torch.Generator().manual_seed(0))
    return made


def test_contrast_is_the_expected_task_in_units_of_the_noise() -> None:
    """Against its definition, in numpy: distances, as each direction's sign is free."""
    tasks, _ = two_kinds()
    found = contrast(tasks)(tasks).numpy()
    moments = fitted(tasks, embedding="moments", normalize=False)
    classes = fitted(tasks, embedding="classes", normalize=False)
    queries = replace(
        tasks, support_x=tasks.query_x, support_y=tasks.query_y, support_mask=tasks.query_mask
    )
    a, b = (torch.cat([moments(some), classes(some)], 1).numpy() for some in (tasks, queries))
    noise, total = (np.cov(rows.T, bias=True) for rows in (a - b, a))
    noise = noise + 0.01 * np.trace(noise) / len(noise) * np.eye(len(noise))
    values, vectors = scipy.linalg.eigh(total, noise)
    expected = (a - a.mean(0)) @ vectors * np.maximum(0, 1 - 1 / np.maximum(values, 1))
    for signature in (found, expected):
        signature -= signature[:1]
    np.testing.assert_allclose(
        np.linalg.norm(found, axis=1), np.linalg.norm(expected, axis=1), rtol=1e-8
    )


def test_contrast_finds_the_kind_that_the_loudest_columns_hide() -> None:
    bank, _ = two_kinds()
    tasks, kind = two_kinds(seed=1)
    shown = own_kind(fitted(bank, embedding="mean", normalize=False)(tasks), kind)
    assert own_kind(contrast(bank)(tasks), kind) > 0.95 > 0.85 > shown


def test_contrast_of_tasks_that_differ_by_chance_alone_says_so() -> None:
    """What differs is noise, and is not blown up."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(400, 8, 5, generator=random, dtype=torch.float64)
    y = torch.zeros(400, 8, dtype=torch.long)
    tasks = TaskBatch(x[:, :4], y[:, :4], x[:, 4:], y[:, 4:], outputs=1)
    with pytest.raises(NumericError, match="nothing that tells the 400 bank tasks looked at apart"):
        contrast(tasks)
    assert contrast(two_kinds()[0])(two_kinds()[0]).std(0).max() > 2


def test_contrast_needs_queries_of_the_bank_and_a_fit() -> None:
    tasks = classification()
    made = Contrast(SignatureOptions(embedding="contrast"), "test")
    with pytest.raises(PluginError, match="has to be fitted on bank tasks"):
        made(tasks)
    with pytest.raises(PluginError, match="these have no queries"):
        made.fit(tasks.without_query(), torch.Generator())
    with pytest.raises(ValueError, match="take signature: support"):
        SignatureOptions(embedding="contrast", signature="all")
