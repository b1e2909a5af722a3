"""learn2learn's algorithms keep the laws, equal their formulas, and laws reject broken ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import fresh_parameters, meta_gradient, toy_tasks
from metaforge_learn2learn.algorithm import Learn2learn
from metaforge_learn2learn.options import Learn2learnOptions
from tests.plugins.learn2learn_cases import (
    ALGORITHMS,
    NEEDS_LEARN2LEARN,
    ByHand,
    made,
    off_identity,
    started,
)
from tests.plugins.maml_cases import CONTEXT, IMAGES, MODELS, NARROW, REAL, WIDE, maml

pytestmark = NEEDS_LEARN2LEARN
ORDERS = pytest.mark.parametrize("order", [1, 2], ids=["first order", "second order"])
SHAPES = pytest.mark.parametrize("shape", [WIDE, REAL], ids=["classification", "regression"])


def held(algorithm: str, shape: TaskShape) -> Any:
    """At order 1 the gradients are constant, the learned update is not."""
    other, params = started("mlp", shape, steps=2, lr=0.4, **ALGORITHMS[algorithm])
    by_hand = ByHand(other.module, other.options)
    constants = by_hand.gradients(params, toy_tasks(shape, unequal=True))
    return lambda theta, tasks: by_hand.losses(theta, tasks, constants)


# -- laws ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "order"),
    [(WIDE, 1), (WIDE, 2), (REAL, 2)],
    ids=["first order", "second order", "regression"],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_laws(algorithm: str, shape: TaskShape, order: int) -> None:
    options = {"lr": 0.4, **ALGORITHMS[algorithm]}
    laws.check_inner_algorithm(
        made(steps=2, order=order, **options),
        shape,
        unadapted=made(steps=0, **options),
        held_losses=held(algorithm, shape),
    )


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [
        ("conv4", "MetaSGD"),
        ("conv4", "Kronecker"),
        ("conv4 batch norm", "ANIL"),
        ("conv4 batch norm", "meta-curvature"),
    ],
)
def test_laws_on_images(model: str, algorithm: str) -> None:
    options = {"lr": 0.4, **ALGORITHMS[algorithm]}
    unadapted = made(model, steps=0, **options)
    laws.check_inner_algorithm(made(model, steps=2, **options), IMAGES, unadapted=unadapted)


# -- the same as by hand -------------------------------------------------------------


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@ORDERS
@SHAPES
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_is_its_formula(algorithm: str, shape: TaskShape, order: int) -> None:
    tasks = toy_tasks(shape, unequal=True)
    options = {"lr": 0.4, "steps": 3, **ALGORITHMS[algorithm]}
    ours, params = started("mlp of two", shape, order=order, **options)
    params = off_identity(params)
    by_hand = ByHand(ours.module, ours.options)
    constants = by_hand.gradients(params, tasks) if order == 1 else None
    expected = by_hand.losses(params, tasks, constants)
    same(ours.losses(params, tasks), expected)
    weights = torch.linspace(0.5, 1.5, 3, dtype=torch.float64)
    gradient = torch.autograd.grad(expected @ weights, list(params.values()))
    for (name, found), value in zip(
        meta_gradient(ours, params, tasks).items(), gradient, strict=True
    ):
        same(found, value)
        assert value.abs().max() > 0, f"{name} learns"


@ORDERS
@pytest.mark.parametrize(
    ("model", "shape"),
    [("linear", WIDE), ("mlp", NARROW), ("mlp", REAL), ("conv4", IMAGES)],
    ids=["linear", "mlp", "mlp, regression", "conv4"],
)
def test_maml_is_the_component_maml(model: str, shape: TaskShape, order: int) -> None:
    tasks = toy_tasks(shape, unequal=True)
    ours, params = started(model, shape, lr=0.4, steps=3, order=order)
    other = maml(model, lr=0.4, steps=3, order=order)
    fresh = fresh_parameters(other, shape)
    for name, value in fresh.items():
        assert torch.equal(value, params[name])
    same(ours.losses(params, tasks), other.losses(params, tasks))
    found, expected = meta_gradient(ours, params, tasks), meta_gradient(other, params, tasks)
    state, others = ours.adapt(params, tasks), other.adapt(params, tasks)
    for name in params:
        same(found[name], expected[name])
        same(state[name], others[name])


@pytest.mark.parametrize("algorithm", ["MetaSGD", "meta-curvature", "Kronecker"])
@pytest.mark.parametrize("model", ["mlp", "conv4"])
def test_learned_updates_start_as_mamls(model: str, algorithm: str) -> None:
    shape = IMAGES if model == "conv4" else WIDE
    tasks = toy_tasks(shape)
    ours, params = started(model, shape, lr=0.4, steps=2, **ALGORITHMS[algorithm])
    other, fewer = started(model, shape, lr=0.4, steps=2)
    same(ours.losses(params, tasks), other.losses(fewer, tasks))
    found = meta_gradient(ours, params, tasks)
    for name, value in meta_gradient(other, fewer, tasks).items():
        same(found[name], value)
    assert len(params) > len(fewer)


def test_anil_adapts_the_head_alone_and_learns_the_rest_through_it() -> None:
    tasks = toy_tasks(WIDE)
    second, params = started("mlp", WIDE, lr=0.4, steps=2, adapt="head")
    state = second.adapt(params, tasks)
    for name, value in params.items():
        moved = (state[name] - value).abs().max() > 0
        assert moved == name.startswith("output."), name
    first, _ = started("mlp", WIDE, lr=0.4, steps=2, adapt="head", order=1)
    a, b = meta_gradient(second, params, tasks), meta_gradient(first, params, tasks)
    assert (a["hidden0.weight"] - b["hidden0.weight"]).abs().max() > 1e-3


def test_float32_is_float64_rounded() -> None:
    tasks = toy_tasks(WIDE, unequal=True)
    ours, params = started("mlp", WIDE, steps=2, **ALGORITHMS["meta-curvature"])
    expected = meta_gradient(ours, params, tasks)
    single = Learn2learn(ours.options, model=MODELS["mlp"])
    values = single.init(WIDE, torch.Generator())
    assert {value.dtype for value in values.values()} == {torch.float32}
    rounded = {k: v.detach().float().requires_grad_() for k, v in params.items()}
    for name, found in meta_gradient(single, rounded, tasks.to(dtype=torch.float32)).items():
        torch.testing.assert_close(found.double(), expected[name], rtol=1e-3, atol=1e-5)


# -- broken specimens ----------------------------------------------------------------


class HoldsWhatItLearns(Learn2learn):
    """Its rates get no gradient."""

    def losses(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Tensor:
        held = {k: v.detach() if k.startswith("lr.") else v for k, v in params.items()}
        free = sum((v * 0).sum() for k, v in params.items() if k.startswith("lr."))
        return super().losses(held, tasks, **kwargs) + free


class AdaptsFeatures(Learn2learn):
    """Says ANIL, and moves everything."""

    def __init__(self, options: Learn2learnOptions, *args: Any, **kwargs: Any):
        super().__init__(options.model_copy(update={"adapt": "all"}), *args, **kwargs)


@ORDERS
def test_rates_that_do_not_learn_are_rejected(order: int) -> None:
    options = Learn2learnOptions(algorithm="MetaSGD", lr=0.4, steps=2, order=order)
    broken = HoldsWhatItLearns(options, CONTEXT, model=MODELS["mlp"])
    params = fresh_parameters(broken, WIDE)
    with pytest.raises(AssertionError, match=f"meta-gradient at order {order}"):
        laws.check_meta_gradient(
            broken,
            params,
            toy_tasks(WIDE, unequal=True),
            held_losses=held("MetaSGD", WIDE),
        )


def test_features_that_adapt_are_not_anils_formula() -> None:
    tasks = toy_tasks(WIDE)
    options = Learn2learnOptions(adapt="head", lr=0.4, steps=2)
    broken = AdaptsFeatures(options, CONTEXT, model=MODELS["mlp"])
    params = fresh_parameters(broken, WIDE)
    expected = ByHand(broken.module, options).losses(params, tasks)
    assert not torch.allclose(broken.losses(params, tasks), expected)
