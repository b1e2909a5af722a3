"""leo keeps the laws of inner algorithms, in training too, and the laws reject what breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge_leo import networks
from metaforge_leo.algorithm import Leo
from metaforge_leo.inner import InnerLoops
from tests.plugins.leo_cases import SHAPE, leo, noise_for, normal, started, unit_tasks

ONE_SHOT = TaskShape("classification", (5,), 4, shots=1, queries=3)


class Training(Leo):
    """Training mode with noise that is fixed by the number of tasks."""

    def losses(self, params: Params, tasks: TaskBatch, **_: Any) -> Tensor:
        return super().losses(params, tasks, training=True, noise=noise_for(self, tasks))


@pytest.mark.parametrize("shape", [SHAPE, ONE_SHOT], ids=["2-shot", "1-shot"])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_laws(shape: TaskShape, steps: int) -> None:
    algorithm = leo(inner_unroll_length=steps, finetuning_unroll_length=steps)
    if shape is ONE_SHOT:  # it has no rows to spare for padding
        params = laws.fresh_parameters(algorithm, shape)
        laws.check_meta_gradient(algorithm, params, unit_tasks(shape))
        laws.check_task_independence(algorithm, params, unit_tasks(shape))
    else:
        laws.check_inner_algorithm(algorithm, shape)


@pytest.mark.parametrize("dropout", [0.0, 0.3], ids="dropout {}".format)
def test_laws_in_training(dropout: float) -> None:
    """The encoder penalty is left out: it holds the adapted codes constant, which finite
    differences do not; its gradient has a test of its own below."""
    algorithm, params = started(Training, encoder_penalty_weight=0.0, dropout_rate=dropout)
    tasks = unit_tasks(SHAPE, unequal=True)
    laws.check_meta_gradient(algorithm, params, tasks)
    laws.check_parameters_untouched(algorithm, params, tasks)
    # rows differ in noise, and row 0 of any number of tasks has the same
    alone = algorithm.losses(params, tasks[:1])
    torch.testing.assert_close(algorithm.losses(params, tasks)[:1], alone, rtol=1e-12, atol=0)


def test_the_gradient_of_the_encoder_penalty_holds_the_adapted_codes() -> None:
    algorithm, params = started(encoder_penalty_weight=1.0, kl_weight=0.0)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)

    def codes(theta: Params) -> list[Tensor]:
        return algorithm.outcome(theta, tasks, training=True, noise=noise).adaptation.latents

    adapted = codes(params)[-1].detach()

    def held(theta: Params) -> Tensor:
        return (codes(theta)[0] - adapted).square().mean((1, 2)).sum()

    total = algorithm.outcome(params, tasks, training=True, noise=noise).encoder_penalty.sum()
    found = torch.autograd.grad(total, list(params.values()), allow_unused=True)
    for (name, value), gradient in zip(params.items(), found, strict=True):
        if name in (networks.DECODER, networks.INNER_LR, networks.FINETUNING_LR):
            assert gradient is None, f"{name} moves the adapted codes alone"
            continue
        assert gradient is not None, name
        direction = normal(value)
        with torch.no_grad():
            ends = [held({**params, name: value + h * direction}) for h in (1e-6, -1e-6)]
        expected = (ends[0] - ends[1]) / 2e-6
        torch.testing.assert_close((gradient * direction).sum(), expected, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_the_penalty() -> None:
    algorithm, params = started()
    value = algorithm.penalty(params)
    names = networks.WEIGHT_MATRICES
    found = torch.autograd.grad(value, [params[name] for name in names])
    for name, gradient in zip(names, found, strict=True):
        direction = normal(gradient)
        with torch.no_grad():
            ends = [
                algorithm.penalty({**params, name: params[name] + h * direction})
                for h in (1e-6, -1e-6)
            ]
        expected = (ends[0] - ends[1]) / 2e-6
        torch.testing.assert_close((gradient * direction).sum(), expected, rtol=1e-6, atol=1e-8)


# -- broken specimens ----------------------------------------------------------------


class FirstOrder(Leo):
    """Its inner gradients are constants, and it says second order."""

    def _adapt(self, params: Params, tasks: TaskBatch, noise: Any) -> Any:
        pull_back, gradient = InnerLoops._pull_back, InnerLoops._gradient
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InnerLoops, "_pull_back", lambda *a: pull_back(*a).detach())
            patch.setattr(InnerLoops, "_gradient", lambda *a: gradient(*a).detach())
            return super()._adapt(params, tasks, noise)


class FreshNoise(Leo):
    """Every call draws anew."""

    calls = 0

    def losses(self, params: Params, tasks: TaskBatch, **_: Any) -> Tensor:
        self.calls += 1
        noise = self.draw_noise(torch.Generator().manual_seed(self.calls), len(tasks))
        return super().losses(params, tasks, training=True, noise=noise)


class CountsPadding(Leo):
    """Padding rows are samples of class 0."""

    def outcome(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Any:
        ones = torch.ones_like(tasks.support_mask)
        return super().outcome(params, replace(tasks, support_mask=ones), **kwargs)


class PoolsCodes(Leo):
    """Every task's codes are the batch's mean."""

    def _adapt(self, params: Params, tasks: TaskBatch, noise: Any) -> Any:
        codes = networks.class_codes
        with pytest.MonkeyPatch.context() as patch:
            pooled = lambda *a: codes(*a).mean(0, keepdim=True).expand(len(tasks), -1, -1)  # noqa: E731
            patch.setattr(networks, "class_codes", pooled)
            return super()._adapt(params, tasks, noise)


class DropsAtEvaluation(Leo):
    """Dropout that predictions see: a query's depends on its place."""

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        kept = torch.rand(query_x.shape, generator=generator, dtype=query_x.dtype) > 0.5
        return super().predict(params, support, query_x * kept)


class SaysFixedWays(Leo):
    variable_ways = False


BROKEN: Mapping[type[Leo], tuple[Any, str]] = {
    FirstOrder: (laws.check_meta_gradient, "meta-gradient at order 2"),
    FreshNoise: (laws.check_meta_gradient, "meta-gradient at order 2"),
    CountsPadding: (laws.check_padding, "padding"),
    PoolsCodes: (laws.check_task_independence, "independence"),
    DropsAtEvaluation: (laws.check_query_by_query, "queries"),
    SaysFixedWays: (laws.check_ways, "variable_ways"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_law_rejects_what_breaks_it(kind: type[Leo]) -> None:
    check, law = BROKEN[kind]
    algorithm, params = started(kind)
    with pytest.raises(AssertionError, match=law):
        check(algorithm, params, unit_tasks(SHAPE, unequal=True))
