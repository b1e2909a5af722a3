"""Phases 1 and 3 with leo: training mode with noise of its own step, evaluation on means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metaforge import conditioning, seeding
from metaforge.conditioning import Arm, Conditioner, Recall
from metaforge.contracts import Params
from metaforge.metatrain import MetaTrainer, WarmStart, task_ids
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskBatch, TaskSource
from metaforge_leo.algorithm import Leo
from tests.plugins.leo_cases import SHAPE, gradient, same, started, unit_tasks

LR = 0.05


class Toys(TaskSource):
    """Task i is the toy task of seed i, whatever the split."""

    shape = SHAPE
    fingerprint = "toys"

    def batch(self, split: str, ids: Any, view: str = "input") -> TaskBatch:
        each = [unit_tasks(SHAPE, 1, seed=int(i)) for i in ids]
        parts = ("support_x", "support_y", "query_x", "query_y")
        arrays = [torch.cat([getattr(task, part) for task in each]) for part in parts]
        return TaskBatch(*arrays, task_ids=torch.as_tensor([int(i) for i in ids]), outputs=3)


def recipe(**condition: Any) -> Recipe:
    sgd = {"use": "sgd", "lr": LR}
    return Recipe.model_validate(
        {
            "data": {"use": "toys"},
            "inner": {"use": "leo"},
            "precision": "float64",
            "bank": {"size": 20},
            "meta_train": {"steps": 1, "batch": 3, "optimizer": sgd, "validation_targets": 4},
            "condition": {"steps": 2, "batch": 3, "top_m": 4, "optimizer": sgd, **condition},
        }
    )


def conditioned(
    algorithm: Leo, theta: Params, arm: Arm, steps: tuple[int, ...], **condition: Any
) -> list[Params]:
    found: list[Params] = []
    target = Toys().batch("test", [7])
    held = Conditioner(recipe(**condition), Toys(), algorithm, WarmStart(theta))
    held.run(
        target, arm, steps, lambda params: found.append({k: v.clone() for k, v in params.items()})
    )
    return found


WEIGHTS = np.array([0.5, 0.3, 0.15, 0.05])
RECALL = Recall(np.array([3, 5, 11, 17]), WEIGHTS)


@pytest.mark.parametrize(("beta1", "beta2"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.7, 2.0)])
def test_a_step_is_the_gradient_of_the_written_objective(beta1: float, beta2: float) -> None:
    """beta1 mean_b M alpha_b L_b + beta2 L(D, D) + penalty: alpha scales a task's own KL and
    encoder penalty, and the regularisers of theta come once, whatever the weights."""
    algorithm, theta = started(dropout_rate=0.3)
    settings = recipe()
    draws = conditioning.draw(
        RECALL, settings.condition, seeding.derive(settings.seed, "condition/draws", 7)
    )
    own = Toys().batch("test", [7]).without_query().support_as_query()
    bank = Toys().batch("train", draws.ids[0])
    tasks = conditioning.concatenate(bank, own) if beta1 and beta2 else bank if beta1 else own
    stream = seeding.generator(settings.seed, "condition/noise", 7, 0)
    noise = algorithm.draw_noise(stream, len(tasks))
    losses = algorithm.losses(theta, tasks, training=True, noise=noise)
    value = algorithm.penalty(theta)
    if beta1:
        value = value + beta1 * (torch.from_numpy(draws.weights[0]) * losses[:3]).mean()
    if beta2:
        value = value + beta2 * losses[-1]
    expected = gradient(value, theta)

    start, end = conditioned(algorithm, theta, Arm("sp", RECALL, beta1, beta2), (0, 1))
    for name, before in theta.items():
        same(start[name], before)
        same(end[name], before - LR * expected[name])


def test_conditioning_is_reproducible_and_its_steps_differ_in_noise() -> None:
    algorithm, theta = started(dropout_rate=0.3)
    arm = Arm("sp", RECALL, 1.0, 1.0)
    first, second = (conditioned(algorithm, theta, arm, (0, 1, 2)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in theta)
    draws = [
        algorithm.draw_noise(seeding.generator(0, "condition/noise", 7, step), 4)["decoder"]
        for step in (0, 1)
    ]
    assert not torch.equal(*draws)


def test_meta_training_draws_the_noise_of_its_step_and_validates_on_means() -> None:
    algorithm, theta = started(dropout_rate=0.3)
    settings = recipe()
    trainer = MetaTrainer(settings, Toys(), algorithm, theta)
    scores: list[float] = []
    trainer.run(lambda: None, lambda step, metrics: scores.append(metrics["validation"]))
    tasks = Toys().batch("train", task_ids(settings, 0))
    noise = algorithm.draw_noise(seeding.generator(settings.seed, "metatrain/noise", 0), 3)
    losses = algorithm.losses(theta, tasks, training=True, noise=noise)
    expected = gradient(losses.mean() + algorithm.penalty(theta), theta)
    for name, before in theta.items():
        same(trainer.optimizer.params[name], before - LR * expected[name])
    validation = Toys().batch("val", range(4))
    for params, score in ((theta, scores[0]), (trainer.optimizer.params, scores[1])):
        outputs = algorithm.predict(params, validation.without_query(), validation.query_x)
        hits = (outputs.argmax(-1) == validation.query_y).double().mean()
        assert score == pytest.approx(float(hits))
