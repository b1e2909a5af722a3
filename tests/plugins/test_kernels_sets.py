"""The signature ``set``: maximum mean discrepancies of the samples themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from metaforge.errors import DataError, NumericError, PluginError
from metaforge.gram import KernelGram
from metaforge.tasks import TaskBatch
from metaforge.testing import kernels as laws
from metaforge_kernels import sets
from metaforge_kernels.options import SignatureOptions
from tests.plugins.test_kernels import KERNELS, classification, regression


def made(**options) -> sets.SampleSet:
    return sets.SampleSet(SignatureOptions(embedding="set", **options), "test")


def fitted(tasks: TaskBatch, **options) -> sets.SampleSet:
    found = made(**options)
    found.fit(tasks, torch.Generator().manual_seed(0))
    return found


def unequal(tasks: TaskBatch) -> TaskBatch:
    """Task i with as many samples fewer as i mod 3."""
    mask = tasks.support_mask.clone()
    for i in range(len(tasks)):
        mask[i, : i % 3] = 0
    return replace(tasks, support_mask=mask)


def standardised(parts: list[Tensor], keep: Tensor) -> Tensor:
    """[B, n, c], by the samples that are there."""
    z = []
    for part in parts:
        rows = part[keep]
        z.append((part - rows.mean(0)) / rows.std(0, correction=0) / rows.shape[1] ** 0.5)
    return torch.cat(z, -1)


def mean_kernel(a: Tensor, b: Tensor, width: float) -> Tensor:
    return torch.exp(-(a[:, None] - b).square().sum(-1) / (2 * width**2)).mean()


def test_distances_are_the_mmd_of_the_samples() -> None:
    tasks = unequal(classification())
    keep = tasks.support_mask > 0
    x = torch.nn.functional.normalize(tasks.support_x.double(), dim=-1)
    z = standardised([x], keep)
    map_ = fitted(tasks, width=0.7)
    signatures = map_(tasks)
    inner = map_.space.inner(signatures, signatures)
    squared = map_.space.squared_distances(signatures, signatures)
    some = [z[i][keep[i]] for i in range(5)]
    for i, a in enumerate(some):
        for j, b in enumerate(some):
            across = mean_kernel(a, b, 0.7)
            expected = mean_kernel(a, a, 0.7) + mean_kernel(b, b, 0.7) - 2 * across
            torch.testing.assert_close(inner[i, j], across)
            torch.testing.assert_close(squared[i, j], expected, rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(map_.space.squared_norms(signatures), inner.diagonal())


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_on_sets_are_their_formulas(kernel: str) -> None:
    tasks = classification()
    map_ = fitted(tasks)
    signatures = map_(tasks)
    squared = map_.space.squared_distances(signatures, signatures)
    options, expected = {
        "gaussian": ({"gamma": 3.0}, torch.exp(-3 * squared)),
        "laplace": ({"sigma": 0.5}, torch.exp(-squared.sqrt() / 0.5)),
        "linear": ({"c": 2.0}, map_.space.inner(signatures, signatures) + 2),
    }[kernel]
    found = laws.fitted(lambda: KERNELS[kernel](embedding="set", **options), tasks)
    torch.testing.assert_close(found.gram(signatures, signatures), expected)
    assert KernelGram(found, signatures).features() is None


def test_regression_is_on_pairs_of_x_and_y() -> None:
    tasks = regression()
    keep = tasks.support_mask > 0
    z = standardised([tasks.support_x.double(), tasks.support_y.double()], keep)
    map_ = fitted(tasks)
    found = map_.space.inner(map_(tasks), map_(tasks))
    torch.testing.assert_close(found[0, 1], mean_kernel(z[0], z[1], 1.0))


def test_fourier_estimates_it() -> None:
    tasks = classification()
    exact = fitted(tasks, width=0.7)
    signatures = exact(tasks)
    squared = exact.space.squared_distances(signatures, signatures)
    fourier = KERNELS["linear"](embedding="fourier", width=0.7, frequencies=20000)
    fourier.fit(tasks, torch.Generator().manual_seed(0))
    waves = fourier.signature(tasks)
    torch.testing.assert_close(torch.cdist(waves, waves).square(), squared, atol=0.02, rtol=0.02)


def test_a_set_and_itself_are_at_distance_zero_in_any_order() -> None:
    tasks = unequal(classification())
    order = torch.randperm(tasks.support_x.shape[1], generator=torch.Generator().manual_seed(1))
    turned = replace(
        tasks,
        support_x=tasks.support_x[:, order],
        support_y=tasks.support_y[:, order],
        support_mask=tasks.support_mask[:, order],
    )
    map_ = fitted(tasks)
    a, b = map_(tasks), map_(turned)
    assert torch.equal(a, b)
    assert map_.space.squared_distances(a, b).diagonal().eq(0).all()


def test_near_sets_keep_their_digits() -> None:
    """At a small step the distance is in proportion to it, also where its square is far below
    the rounding of the inner products that make it up."""
    tasks = unequal(classification(dtype=torch.float64))
    map_ = fitted(tasks)
    a = map_(tasks)
    step = torch.randn(a.shape, generator=torch.Generator().manual_seed(0), dtype=a.dtype)
    step *= a != 0  # empty places stay so
    weights, full = step[:, -6:], a[:, -6:] != 0
    weights -= full * (weights.sum(1) / full.sum(1))[:, None]  # their sum is 1 after it too

    def shares(gap: float) -> Tensor:
        moved = a + gap * step  # samples and weights
        return map_.space.squared_distances(a, moved).diagonal() / gap**2

    at_six, at_ten = shares(1e-6), shares(1e-10)
    torch.testing.assert_close(at_ten, at_six, rtol=1e-4, atol=0)
    torch.testing.assert_close(at_six, shares(1e-3), rtol=0.05, atol=0)


def test_sets_of_unequal_numbers_of_the_same_sample_are_equal() -> None:
    tasks = unequal(classification())
    alike = replace(tasks, support_x=torch.ones_like(tasks.support_x))
    map_ = fitted(alike)
    assert map_.space.squared_distances(map_(alike), map_(alike)).eq(0).all()
    with pytest.raises(NumericError, match="all equal"):
        KERNELS["gaussian"](embedding="set").fit(alike, torch.Generator())


@pytest.mark.parametrize("tile", [1, 200, 5000])
def test_tiles_make_no_difference(tile: int, monkeypatch) -> None:
    tasks = classification()
    map_ = fitted(tasks)
    signatures = map_(tasks)
    whole = map_.space.squared_distances(signatures, signatures[:7])
    monkeypatch.setattr(sets, "_TILE", tile)
    monkeypatch.setattr(sets, "_COLUMNS", 3)
    torch.testing.assert_close(map_.space.squared_distances(signatures, signatures[:7]), whole)
    kernel = laws.fitted(lambda: KERNELS["gaussian"](embedding="set"), tasks)
    laws.check_columns(kernel, signatures, signatures[:7])


@pytest.mark.parametrize("width", [1e-6, 1e-12, 1e-100])
def test_at_any_width_a_set_is_at_no_distance_from_itself(width: float) -> None:
    tasks = classification()
    map_ = fitted(tasks, width=width)
    a = map_(tasks)
    squared = map_.space.squared_distances(a, a.roll(1, 0)).roll(-1, 1)
    assert squared.diagonal().eq(0).all()
    assert squared.sum(1).min() > 3


def test_samples_far_from_their_centre_lose_no_digits() -> None:
    """A narrow width: the product alone is off by 1e-4."""
    space = sets.SetSpace(places=2, width=1e-6)
    random = torch.Generator().manual_seed(0)
    z = torch.randn(6, 2, 3, generator=random, dtype=torch.float64)
    z[3:] = z[:3] + 3e-7
    a = torch.cat([z.flatten(1), torch.full((6, 2), 0.5, dtype=torch.float64)], 1)
    expected = torch.tensor(-3 * 0.09 / 2, dtype=torch.float64).exp() / 2
    torch.testing.assert_close(
        space.inner(a[:3], a[3:]).diagonal(), expected.expand(3), rtol=1e-8, atol=0
    )


def test_sets_of_more_samples_than_the_bank_has_are_refused() -> None:
    map_ = fitted(classification(shots=2))
    longer = classification(shots=3)
    with pytest.raises(DataError, match="at most 6 samples, and task 0 has 9; take a bank"):
        map_(longer)
    mask = longer.support_mask.clone()
    mask[:, 6:] = 0
    assert map_(replace(longer, support_mask=mask)).shape == map_(classification()).shape


def test_fewer_samples_than_the_bank_has_are_a_set_too() -> None:
    tasks = classification()
    map_ = fitted(tasks)
    mask = tasks.support_mask.clone()
    mask[:, 4:] = 0
    short = TaskBatch(tasks.support_x[:, :4], tasks.support_y[:, :4])
    assert torch.equal(map_(short), map_(replace(tasks, support_mask=mask)))


def test_refusals() -> None:
    with pytest.raises(PluginError, match="set has to be fitted"):
        made()(classification())
    with pytest.raises(PluginError, match="set has to be fitted"):
        KERNELS["linear"](embedding="set").gram(torch.zeros(1, 2), torch.zeros(1, 2))
    with pytest.raises(PluginError, match=r"signature: all.*needs labels"):
        made(signature="all").fit(regression(), torch.Generator())
    assert "signature: all" in SignatureOptions(embedding="set", signature="all").unfit(
        "regression"
    )
    with pytest.raises(ValueError, match="set does not read frequencies"):
        SignatureOptions(embedding="set", frequencies=8)
