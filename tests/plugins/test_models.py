"""The built-in models: shapes, initial values, normalisers, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from metaforge.contracts import Model
from metaforge.errors import DataError
from metaforge.tasks import TaskShape
from metaforge_models.conv import Conv4, ResNet12
from metaforge_models.dense import Linear, Mlp
from metaforge_models.initial import fresh
from metaforge_models.options import Conv4Options, LinearOptions, MlpOptions, ResNet12Options

IMAGES = TaskShape("classification", (3, 20, 17), 5, 1, 1)
VECTORS = TaskShape("classification", (12,), 5, 1, 1)
BATCH: dict[str, Any] = {"norm": "batch", "transductive": True}
MODELS = {
    "linear": Linear(LinearOptions()),
    "mlp": Mlp(MlpOptions(hidden=(8, 7))),
    "conv4": Conv4(Conv4Options(filters=4)),
    "conv4 batch norm": Conv4(Conv4Options(filters=4, **BATCH)),
    "resnet12": ResNet12(ResNet12Options(widths=(2, 3, 4, 5))),
    "resnet12 batch norm": ResNet12(ResNet12Options(widths=(2, 3, 4, 5), **BATCH)),
}


def build(model: Model, shape: TaskShape, seed: int = 0) -> nn.Module:
    return model.build(shape, torch.Generator().manual_seed(seed))


def images(n: int) -> torch.Tensor:
    return torch.randn(n, *IMAGES.input_shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_have_a_row_a_sample(name: str) -> None:
    assert build(MODELS[name], IMAGES)(images(6)).shape == (6, 5)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_vectors_are_taken_as_they_are(name: str) -> None:
    module = build(MODELS[name], VECTORS)
    assert module(torch.ones(2, 12)).shape == (2, 5)
    assert not any(isinstance(layer, nn.Flatten) for layer in module)


@pytest.mark.parametrize("name", MODELS)
def test_values_come_from_the_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first, same, other = (build(MODELS[name], IMAGES, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert all(value.isfinite().all() for value in first.values())
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_layers_are_uniform_in_one_over_root_fan_in() -> None:
    module = build(Conv4(Conv4Options(filters=32)), IMAGES)
    weight, bias = module.conv1.weight, module.conv1.bias
    bound = 1 / math.sqrt(32 * 9)
    for values in (weight, bias):
        assert values.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert (module.norm1.weight == 1).all()
    assert (module.norm1.bias == 0).all()


def test_an_unknown_layer_is_not_left_uninitialised() -> None:
    with pytest.raises(TypeError, match="PReLU"):
        fresh(lambda: nn.PReLU(), torch.Generator())


@pytest.mark.parametrize("name", MODELS)
def test_transductive_says_whether_samples_see_each_other(name: str) -> None:
    module, x = build(MODELS[name], IMAGES), images(6)
    alone = torch.cat([module(x[:3]), module(x[3:])])
    assert MODELS[name].transductive == (not torch.allclose(module(x), alone, atol=1e-5))
    assert MODELS[name].transductive == ("batch" in name)


@pytest.mark.parametrize("name", ["conv4 batch norm", "resnet12 batch norm"])
def test_batch_norm_keeps_no_running_statistics(name: str) -> None:
    module, x = build(MODELS[name], IMAGES), images(6)
    assert list(module.buffers()) == []
    torch.testing.assert_close(module.train()(x), module.eval()(x))


@pytest.mark.parametrize("options", [Conv4Options, ResNet12Options])
def test_batch_norm_needs_transductive(options: Any) -> None:
    with pytest.raises(ValidationError, match="say transductive: true"):
        options(norm="batch")
    with pytest.raises(ValidationError, match="does nothing with norm: layer"):
        options(transductive=True)


def test_the_normaliser_is_named_where_options_are_shown() -> None:
    assert "group norm with one group" in (Conv4Options.model_fields["norm"].description or "")


@pytest.mark.parametrize("name", ["conv4", "resnet12"])
def test_images_are_needed_and_large_enough(name: str) -> None:
    with pytest.raises(DataError, match=r"needs images.*\[12\].*linear or mlp"):
        build(MODELS[name], VECTORS)
    small = TaskShape("classification", (3, 15, 40), 5, 1, 1)
    with pytest.raises(DataError, match="at least 16 x 16 pixels; found 15 x 40"):
        build(MODELS[name], small)


@pytest.mark.parametrize("hidden", [[], [0], [-3]], ids=str)
def test_hidden_widths_are_positive(hidden: list[int]) -> None:
    with pytest.raises(ValidationError, match="hidden"):
        MlpOptions(hidden=hidden)
