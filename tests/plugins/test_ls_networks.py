"""ls and r2d2 on the features of a network: images through conv4, resnet12 or any module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.func import functional_call

import metaforge
from metaforge import losses
from metaforge.contracts import Model, Params
from metaforge.errors import PluginError, RecipeError
from metaforge.recipe import load
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import meta_gradient, toy_tasks
from metaforge_ls.closed_form import ClosedForm, targets
from metaforge_ls.ls import Ls, squared_errors
from metaforge_ls.options import LsOptions, R2d2Options
from metaforge_ls.r2d2 import R2d2
from metaforge_models.initial import fresh
from tests.plugins.ls_cases import CONTEXT, started
from tests.plugins.maml_cases import IMAGES, MODELS, REAL_IMAGES, WIDE
from tests.small import SMALL

OUTER = {"ls": squared_errors, "r2d2": losses.task_losses}
MODEL = pytest.mark.parametrize("model", ["conv4", "resnet12"])
NAME = pytest.mark.parametrize("name", ["ls", "r2d2"])


def make(name: str, model: str | nn.Module | Model, **options: Any) -> ClosedForm:
    ready = MODELS[model] if isinstance(model, str) else model
    if name == "ls":
        return Ls(LsOptions(**options), CONTEXT, network=ready)
    return R2d2(R2d2Options(**options), CONTEXT, network=ready)


@MODEL
@NAME
def test_laws(name: str, model: str) -> None:
    laws.check_inner_algorithm(make(name, model), IMAGES, task_losses=OUTER[name])


class Smooth(Model):
    """Without relu and maximum, at whose kinks finite differences stumble."""

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        def build() -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1),
                nn.GroupNorm(1, 4),
                nn.Softplus(),
                nn.AvgPool2d(8),
                nn.Flatten(),
                nn.Linear(16, shape.outputs),
            )

        return fresh(build, generator)


@NAME
def test_laws_on_regression(name: str) -> None:
    laws.check_inner_algorithm(make(name, Smooth()), REAL_IMAGES, task_losses=OUTER[name])


def plain_outputs(algorithm: ClosedForm, params: Params, tasks: TaskBatch, b: int) -> Tensor:
    """One task, padding cut away, by the network's own layers and the primal equations."""
    network = algorithm.model_for_tests

    def features(x: Tensor) -> Tensor:
        own = {n.removeprefix("map."): v for n, v in params.items() if n.startswith("map.")}
        layers = [one for name, one in network.named_children() if name != "output"]
        return functional_call(nn.Sequential(*layers), _numbered(network, own), (x,))

    rows = tasks.support_mask[b] > 0
    x = features(tasks.support_x[b, rows])
    y = targets(tasks.support_y[b, rows][None], tasks.outputs, x.dtype)[0]
    penalty = algorithm.options.ridge * torch.eye(x.shape[1]).to(x)
    assert tasks.query_x is not None
    return features(tasks.query_x[b]) @ torch.linalg.solve(x.T @ x + penalty, x.T @ y)


def _numbered(network: nn.Module, own: Params) -> Params:
    """Parameters by their layers' numbers, as in a plain ``nn.Sequential``."""
    number = {name: str(i) for i, (name, _) in enumerate(network.named_children())}
    return {f"{number[n.partition('.')[0]]}.{n.partition('.')[2]}": v for n, v in own.items()}


def test_outputs_are_ridge_regression_on_what_the_last_layer_sees() -> None:
    algorithm, params = started(make("ls", "conv4"), IMAGES)
    algorithm.model_for_tests = MODELS["conv4"].build(IMAGES, torch.Generator()).double()
    tasks = toy_tasks(IMAGES, unequal=True)
    assert tasks.query_x is not None
    found = algorithm.predict(params, tasks, tasks.query_x)
    for b in range(len(tasks)):
        expected = plain_outputs(algorithm, params, tasks, b)
        torch.testing.assert_close(found[b], expected, rtol=1e-9, atol=1e-9)
    assert not any("output" in name for name in params)


@NAME
def test_every_parameter_of_the_network_learns(name: str) -> None:
    algorithm, params = started(make(name, "conv4"), IMAGES)
    found = meta_gradient(algorithm, params, toy_tasks(IMAGES))
    assert all(value.abs().max() > 0 for key, value in found.items() if key.startswith("map."))


class CountsPadding(Ls):
    """Takes the features of padding, which biases keep from being zero, into the regression."""

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        params = super().init(shape, generator)
        self.map.keeps_zero = True
        return params


def test_features_of_padding_must_be_zero() -> None:
    algorithm, params = started(
        CountsPadding(LsOptions(), CONTEXT, network=MODELS["conv4"]), IMAGES
    )
    with pytest.raises(AssertionError, match="padding"):
        laws.check_padding(algorithm, params, toy_tasks(IMAGES, unequal=True))


def test_any_module_that_ends_in_an_affine_layer_serves() -> None:
    torch.manual_seed(0)
    given = nn.Sequential(nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    laws.check_inner_algorithm(make("ls", given), WIDE, task_losses=squared_errors)
    assert isinstance(given[2], nn.Linear)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (MODELS["conv4 batch norm"], "statistics of its batch.*norm: layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(256, 3), nn.Tanh()), "does not end in an affine"),
        (nn.Sequential(nn.Flatten(), nn.Linear(256, 4)), r"gives \[4, 4\]"),
    ],
    ids=["batch norm", "tanh at the end", "other outputs"],
)
def test_a_network_that_cannot_serve_is_refused(given: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        started(make("ls", given), IMAGES)


def test_init_comes_first() -> None:
    with pytest.raises(PluginError, match="call init"):
        make("ls", "conv4").losses({}, toy_tasks(IMAGES))


@pytest.mark.parametrize("kind", [LsOptions, R2d2Options])
def test_options_that_a_network_does_not_read_are_refused(kind: Any) -> None:
    with pytest.raises(ValidationError, match="hidden, normalize: not read, as network is given"):
        kind(network={"use": "conv4"}, hidden=3, normalize=False)


def test_a_recipe_chooses_the_network(tmp_path: Any) -> None:
    data = {"use": "glyphs", "input": "images", "ways": 3, "shots": 1, "queries": 2}
    inner = {"use": "r2d2", "network": {"use": "conv4", "filters": 4}}
    few = {"steps": 2, "batch": 2, "validation_targets": 2}
    recipe = SMALL | {"data": data, "inner": inner, "bank": {"size": 20}, "meta_train": few}
    with pytest.raises(RecipeError, match=r"inner.network: model conv4 needs images.*\[64\]"):
        load(recipe, ["data.input=features"])
    found = metaforge.run(
        recipe, f"output={tmp_path}", "evaluate.targets=2", "condition.top_m=5", quiet=True
    )
    assert found["inner"]["network"]["use"] == "conv4"
    assert "hidden" not in found["inner"]


def test_another_algorithm_s_model_is_not_taken_over() -> None:
    """``inner.use=ls`` on a recipe of maml means the residual layer."""
    assert load("sp_maml", ["inner.use=ls"]).recipe.inner.options["network"] is None
