"""``sinusoids``: regression tasks that are what their description says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.registry import get
from metaforge.testing import datasets as laws
from metaforge_sinusoids.options import FAMILIES, SinusoidsOptions
from metaforge_sinusoids.source import CURVES, Sinusoids


def make(seed: int = 0, **options) -> Sinusoids:
    context = Context(seed=seed, dtype="float64")
    return Sinusoids(SinusoidsOptions(**options), context)


@pytest.mark.parametrize("options", [{}, {"noise": 0.3}, {"families": ("line",), "shots": 1}])
def test_every_law_over_a_thousand_tasks(options):
    laws.check_task_source(lambda seed: make(seed, **options))


@pytest.mark.slow
def test_another_process_makes_the_same_tasks():
    laws.check_processes(laws.Drawn(make(noise=0.1), "train", range(50)))


FORMULAS = {
    "sine": lambda x, p: p["a"] * np.sin(p["w"] * x + p["b"]),
    "line": lambda x, p: p["a"] * x + p["b"],
    "quadratic": lambda x, p: p["a"] * (x - p["c"]) ** 2 + p["b"],
    "tanh": lambda x, p: p["a"] * np.tanh(x - p["c"]) + p["b"],
    "absolute": lambda x, p: p["a"] * np.abs(x - p["c"]) + p["b"],
}


def test_points_lie_on_the_described_curve():
    source = make()
    batch = source.batch("val", range(200))
    for task in range(200):
        told = source.describe_task("val", task)
        for x, y in (
            (batch.support_x[task], batch.support_y[task]),
            (batch.query_x[task], batch.query_y[task]),
        ):
            expected = FORMULAS[told["group"]](x.numpy(), told["parameters"])
            assert np.allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_parameters_fill_their_ranges_with_both_signs():
    source = make()
    told = [source.describe_task("train", task) for task in range(5000)]
    for family in FAMILIES:
        mine = [t["parameters"] for t in told if t["group"] == family]
        assert abs(len(mine) / 5000 - 0.2) < 0.03
        for name, (low, high) in CURVES[family].ranges.items():
            values = np.array([parameters[name] for parameters in mine])
            sizes = abs(values) if name == CURVES[family].signed else values
            assert low <= sizes.min() < low + 0.05 * (high - low)
            assert high - 0.05 * (high - low) < sizes.max() <= high
            assert abs(sizes.mean() - (low + high) / 2) < 0.05 * (high - low)
            if name == CURVES[family].signed:
                assert abs((values < 0).mean() - 0.5) < 0.06


def test_inputs_are_uniform_and_families_spread_alike():
    source = make()
    batch, groups = source.batch("train", range(5000)), source.groups("train", range(5000))
    x = torch.cat([batch.support_x, batch.query_x], 1)
    assert -5 <= x.min() < -4.99
    assert 4.99 < x.max() <= 5
    assert abs(x.std() - 10 / 12**0.5) < 0.02
    for family in range(len(FAMILIES)):
        assert 2.2 < batch.query_y[groups == family].std() < 4.1


def test_noise_is_normal_of_the_given_size_and_leaves_the_curves_alone():
    clean, noisy = make().batch("train", range(2000)), make(noise=0.5).batch("train", range(2000))
    assert torch.equal(clean.query_x, noisy.query_x)
    noise = torch.cat([noisy.support_y - clean.support_y, noisy.query_y - clean.query_y], 1) / 0.5
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert abs((noise.abs() < 1).double().mean() - 0.6827) < 0.01
    assert abs((noise**4).mean() - 3) < 0.15
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 0.08


def test_fewer_families_are_the_groups_in_the_given_order():
    assert get("dataset", "sinusoids").groups is True
    source = make(families=("tanh", "sine"))
    assert source.group_names == ("tanh", "sine")
    assert {source.describe_task("test", task)["group"] for task in range(50)} == {"tanh", "sine"}


def test_the_fingerprint_changes_with_every_option():
    variants = [{}, {"shots": 5}, {"queries": 5}, {"noise": 0.1}, {"families": ("sine",)}]
    prints = {make(**options).fingerprint for options in variants} | {make(1).fingerprint}
    assert len(prints) == len(variants) + 1


def test_created_by_name_with_the_run_s_precision():
    source = metaforge.create("dataset", "sinusoids", shots=3)
    batch = source.batch("train", torch.tensor([4, 2]))
    assert batch.support_x.shape == (2, 3, 1)
    assert batch.support_y.dtype == torch.float32
    assert batch.is_regression
    assert batch.outputs == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": []}, "at least one family"),
        ({"families": ["sine", "sine"]}, "given twice"),
        ({"families": ["cosine"]}, "families"),
        ({"noise": -1}, "noise"),
        ({"shots": 0}, "shots"),
    ],
)
def test_options_that_make_no_task_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        metaforge.create("dataset", "sinusoids", **options)


def test_an_unknown_split_is_named():
    with pytest.raises(DataError, match="no split 'dev'; it has train, val, test"):
        make().batch("dev", [0])
