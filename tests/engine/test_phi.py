"""Kernels that look at a sample through theta_hat: whose features, when, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import metaforge
from metaforge import modules, seeding, stages
from metaforge.components import Context
from metaforge.errors import MetaforgeError, PluginError
from metaforge.gram import bank_gram
from metaforge.phi import DataPhi, LearnedPhi
from metaforge.recipe import load
from metaforge.tasks import TaskShape
from metaforge.testing.inner_algorithms import toy_tasks
from metaforge_leo.algorithm import Leo
from metaforge_leo.options import LeoOptions
from metaforge_ls.residual_map import psi
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions
from tests.plugins.ls_cases import WIDE, ls, started
from tests.small import SMALL

THETA_HAT = {"use": "gaussian", "bandwidth": "median", "phi": "theta_hat"}


def maml(module: nn.Module, shape: TaskShape):
    made = Maml(MamlOptions(steps=1, lr=0.1), Context(dtype="float64"), model=module)
    return made, made.init(shape, seeding.generator(0, "init"))


def test_of_ls_it_is_psi_of_the_normalised_input() -> None:
    algorithm, params = started(ls(), WIDE)
    x = toy_tasks(WIDE).support_x[0]
    expected = psi(F.normalize(x, dim=-1), params["w0"], params["w1"])
    torch.testing.assert_close(algorithm.features(params, x), expected)


def test_of_leo_it_is_the_code() -> None:
    algorithm = Leo(LeoOptions(num_latents=4), Context(dtype="float64"))
    params = algorithm.init(WIDE, seeding.generator(0, "init"))
    x = toy_tasks(WIDE).support_x[0]
    torch.testing.assert_close(algorithm.features(params, x), x @ params["leo.encoder.linear.w"])


def test_of_a_model_it_is_what_the_last_layer_sees_at_theta() -> None:
    module = nn.Sequential(nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    algorithm, params = maml(module, WIDE)
    moved = {name: value + 0.1 for name, value in params.items()}
    x = toy_tasks(WIDE).support_x[0]
    expected = torch.tanh(x @ moved["0.weight"].T + moved["0.bias"])
    torch.testing.assert_close(algorithm.features(moved, x), expected)


def test_a_model_of_one_layer_shows_the_input() -> None:
    algorithm, params = maml(nn.Linear(9, 3).double(), WIDE)
    x = toy_tasks(WIDE).support_x[0]
    assert torch.equal(algorithm.features(params, x), x)


def test_a_module_without_affine_layers_has_none() -> None:
    module = nn.Conv1d(1, 1, 1)
    assert modules.features(module, dict(module.named_parameters()), torch.ones(2, 1, 3)) is None


def test_rows_that_see_each_other_have_none() -> None:
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    algorithm, params = maml(nn.Sequential(nn.Linear(9, 5), norm, nn.Linear(5, 3)).double(), WIDE)
    assert algorithm.transductive
    assert algorithm.features(params, toy_tasks(WIDE).support_x[0]) is None


def test_tasks_are_seen_through_theta_and_else_as_they_are() -> None:
    algorithm, params = started(ls(), WIDE)
    tasks = toy_tasks(WIDE, unequal=True)
    seen = LearnedPhi(algorithm, params)(tasks)
    for side in ("support_x", "query_x"):
        x = getattr(tasks, side)
        expected = algorithm.features(params, x.flatten(0, 1)).unflatten(0, x.shape[:2])
        torch.testing.assert_close(getattr(seen, side), expected)
    assert torch.equal(seen.support_y, tasks.support_y)
    assert LearnedPhi(algorithm, params)(tasks.without_query()).query_x is None
    assert DataPhi()(tasks) is tasks


def mapping(tmp_path, **sections: Any) -> dict[str, Any]:
    return {**SMALL, "output": str(tmp_path / "runs"), "kernel": THETA_HAT, **sections}


def recipe(tmp_path, **sections: Any):
    return load(mapping(tmp_path, **sections))


def parts_of(resolved) -> stages.Parts:
    context = stages.context_for(resolved.recipe, Context(base_dir=resolved.base_dir))
    return stages.Parts.build(resolved.recipe, context)


def test_the_bank_is_seen_through_what_phase_1_found(tmp_path) -> None:
    parts = parts_of(recipe(tmp_path))
    parts.theta_hat = {name: value + 0.05 for name, value in parts.theta.items()}
    phi = LearnedPhi(parts.inner, parts.theta_hat)
    stream = seeding.generator(parts.recipe.seed, "kernel")
    expected = bank_gram(parts.source, parts.kernel, parts.recipe.bank.size, stream, phi)
    assert torch.equal(parts.gram.signatures(), expected.signatures())
    other = parts_of(recipe(tmp_path))
    other.theta_hat = other.theta
    assert not torch.allclose(other.gram.signatures(), parts.gram.signatures())


def test_a_whole_run_recalls_by_theta_hat(tmp_path) -> None:
    through, plain = (
        metaforge.run(mapping(tmp_path, kernel={**THETA_HAT, "phi": phi}), quiet=True)
        for phi in ("theta_hat", "data")
    )
    assert through["unconditional"] == plain["unconditional"]
    assert through["weights"] != plain["weights"]
    assert through["fits"]["kernel"] != plain["fits"]["kernel"]


def test_selection_tries_both(tmp_path) -> None:
    select = {"grid": {"kernel.phi": ["data", "theta_hat"]}, "targets": 4}
    found = metaforge.run(mapping(tmp_path, kernel={"use": "gaussian"}, select=select), quiet=True)
    assert found["selected"]["kernel.phi"] in ("data", "theta_hat")


def test_what_is_learned_in_phase_1_cannot_look_through_it(tmp_path) -> None:
    with pytest.raises(MetaforgeError, match=r"kernel\.phi.*after phase 1.*'uncertainty'"):
        recipe(tmp_path, weighting={"use": "uncertainty"})


def test_a_learner_without_features_is_refused_before_the_work(tmp_path) -> None:
    resolved = recipe(tmp_path)
    parts = parts_of(resolved)
    parts.inner.transductive = True
    with pytest.raises(PluginError, match=r"phi: theta_hat reads the features.*Maml has none"):
        parts.with_recipe(resolved.recipe)
