"""The outer optimiser against its formulas, and its state against itself."""

import math

import pytest
import torch

from metaforge.optimizers import OuterOptimizer
from metaforge.recipe.schema import Optimizer

RATE = 1e-2


def gradients(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [
        torch.randn(4, 3, generator=generator, dtype=torch.float64),
        torch.randn(5, generator=generator, dtype=torch.float64),
    ]


def start() -> dict[str, torch.Tensor]:
    return {"a": torch.ones(4, 3, dtype=torch.float64), "b": torch.zeros(5, dtype=torch.float64)}


def adam_by_hand(convention: str, steps: int) -> list[torch.Tensor]:
    b1, b2, eps = 0.9, 0.999, 1e-8
    tensors = [value.clone() for value in start().values()]
    m = [torch.zeros_like(p) for p in tensors]
    v = [torch.zeros_like(p) for p in tensors]
    for t in range(1, steps + 1):
        for i, g in enumerate(gradients(t)):
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            if convention == "tf1":
                rate = RATE * math.sqrt(1 - b2**t) / (1 - b1**t)
                tensors[i] = tensors[i] - rate * m[i] / (v[i].sqrt() + eps)
            else:
                mean, spread = m[i] / (1 - b1**t), (v[i] / (1 - b2**t)).sqrt()
                tensors[i] = tensors[i] - RATE * mean / (spread + eps)
    return tensors


@pytest.mark.parametrize("convention", ["torch", "tf1"])
def test_adam_follows_its_convention(convention):
    optimizer = OuterOptimizer(start(), Optimizer(lr=RATE, eps_convention=convention))
    for t in range(1, 11):
        optimizer.step(gradients(t))
    for found, expected in zip(
        optimizer.params.values(), adam_by_hand(convention, 10), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_the_two_conventions_differ_where_gradients_are_tiny():
    ends = []
    for convention in ("torch", "tf1"):
        optimizer = OuterOptimizer(start(), Optimizer(lr=RATE, eps_convention=convention))
        optimizer.step([1e-7 * g for g in gradients(1)])
        ends.append(optimizer.params["a"].detach().clone())
    assert (ends[0] - ends[1]).abs().max() > 1e-3


def test_clipping_is_by_value_first_then_by_each_tensors_norm():
    optimizer = OuterOptimizer(start(), Optimizer(clip_value=0.5, clip_norm=0.8))
    big, small = torch.tensor([3.0, -4.0]), torch.tensor([0.1, 0.2])
    clipped = optimizer.clip([big, small])
    torch.testing.assert_close(clipped[0], torch.tensor([0.5, -0.5]))  # norm 0.71 is within 0.8
    torch.testing.assert_close(clipped[1], small)
    torch.testing.assert_close(
        OuterOptimizer(start(), Optimizer(clip_norm=1.0)).clip([big])[0], torch.tensor([0.6, -0.8])
    )


@pytest.mark.parametrize("use", ["adam", "sgd"])
def test_a_restored_optimiser_goes_on_bitwise(use):
    settings = Optimizer(use=use, lr=RATE, momentum=0.9 if use == "sgd" else 0.0)
    whole = OuterOptimizer(start(), settings)
    for t in range(1, 7):
        whole.step(gradients(t))
    half = OuterOptimizer(start(), settings)
    for t in range(1, 4):
        half.step(gradients(t))
    resumed = OuterOptimizer(start(), settings)
    resumed.restore(half.state())
    for t in range(4, 7):
        resumed.step(gradients(t))
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name])


@pytest.mark.parametrize("convention", ["torch", "tf1"])
def test_thetas_moments_are_carried_on_and_a_weightings_are_not(convention):
    settings = Optimizer(lr=RATE, eps_convention=convention)
    extra = {"s": torch.zeros(2, dtype=torch.float64)}
    whole = OuterOptimizer(start(), settings, extra, RATE)
    for t in range(1, 4):
        whole.step([*gradients(t), extra["s"] + t])
    # Another weighting, of another size; theta goes on, and the weighting begins.
    other = {"s": torch.zeros(5, dtype=torch.float64)}
    carried = OuterOptimizer(
        {k: v.detach() for k, v in whole.params.items()}, settings, other, RATE
    )
    carried.carry_on(whole.state())
    fresh = OuterOptimizer(start(), settings, other, RATE)
    for t in range(4, 7):
        tiny = 1e-7 * (other["s"] + t)
        whole.step([*gradients(t), extra["s"] + t])
        carried.step([*gradients(t), tiny])
        fresh.step([*gradients(t), tiny])
    for name, value in whole.params.items():
        torch.testing.assert_close(carried.params[name], value, rtol=1e-14, atol=1e-15)
        assert (fresh.params[name] - value).abs().max() > 1e-3
    assert torch.equal(carried.extra["s"], fresh.extra["s"])


def test_extra_parameters_have_their_own_rate_and_are_not_clipped():
    extra = {"s": torch.zeros(2, dtype=torch.float64)}
    optimizer = OuterOptimizer(start(), Optimizer(use="sgd", lr=0.0001, clip_value=0.1), extra, 0.5)
    optimizer.step([*gradients(1), torch.tensor([2.0, -2.0], dtype=torch.float64)])
    torch.testing.assert_close(
        optimizer.extra["s"].detach(), torch.tensor([-1.0, 1.0], dtype=torch.float64)
    )


def test_the_given_parameters_are_not_touched():
    params = start()
    OuterOptimizer(params, Optimizer(lr=1.0)).step(gradients(1))
    assert torch.equal(params["a"], start()["a"])
