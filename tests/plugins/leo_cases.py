"""What the tests of leo share: small float64 algorithms, tasks, and the per-task loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import leo as loop
from metaforge import seeding
from metaforge.components import Context
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters, toy_tasks
from metaforge_leo.algorithm import Leo
from metaforge_leo.options import LeoOptions

CONTEXT = Context(dtype="float64")
#: 3-way 2-shot, 9 features.
SHAPE = TaskShape("classification", (9,), 3, shots=2, queries=2)
#: Small, with rates and weights at which every term counts.
SMALL: dict[str, Any] = {
    "num_latents": 4,
    "inner_unroll_length": 2,
    "finetuning_unroll_length": 2,
    "inner_lr_init": 0.2,
    "finetuning_lr_init": 0.1,
    "kl_weight": 0.1,
    "encoder_penalty_weight": 0.2,
    "l2_penalty_weight": 0.01,
    "orthogonality_penalty_weight": 0.1,
}


def leo(kind: type[Leo] = Leo, context: Context = CONTEXT, **options: Any) -> Leo:
    return kind(LeoOptions(**{**SMALL, **options}), context)


def started(kind: type[Leo] = Leo, shape: TaskShape = SHAPE, **options: Any) -> tuple[Leo, Params]:
    """An initialised algorithm and its parameters, ready for gradients."""
    algorithm = leo(kind, **options)
    return algorithm, fresh_parameters(algorithm, shape)


def unit_tasks(shape: TaskShape, n_tasks: int = 3, **options: Any) -> TaskBatch:
    """Random tasks whose inputs have unit length, as LEO's are meant to."""
    tasks = toy_tasks(shape, n_tasks, **options)
    assert tasks.query_x is not None
    support_x, query_x = (F.normalize(x, dim=-1) for x in (tasks.support_x, tasks.query_x))
    return replace(tasks, support_x=support_x, query_x=query_x)


def noise_for(algorithm: Leo, tasks: TaskBatch) -> dict[str, Tensor]:
    return algorithm.draw_noise(seeding.generator(0, "noise"), len(tasks))


def by_the_loop(
    algorithm: Leo, params: Params, tasks: TaskBatch, noise: dict[str, Tensor] | None
) -> list[loop.Parts]:
    """Each task by the plain loop, its padding rows (and their noise) cut away."""
    found = []
    for task, own in loop.split(tasks, noise):
        support, query = task.support_mask[0] > 0, task.query_mask[0] > 0
        alone = TaskBatch(
            task.support_x[:, support],
            task.support_y[:, support],
            task.query_x[:, query],
            task.query_y[:, query],
            outputs=task.outputs,
        )
        kept = {
            name: value[..., : len(rows), :][..., rows, :]
            for name, value in (own or {}).items()
            for rows in [query if name == "dropout_query" else support]
        }
        found.append(loop.task_loss(params, alone, algorithm.options, kept or None))
    return found


def gradient(value: Tensor, params: Params) -> Params:
    found = torch.autograd.grad(value, list(params.values()))
    return dict(zip(params, found, strict=True))


def normal(like: Tensor) -> Tensor:
    """The same normal numbers every time."""
    stream = seeding.generator(0, "normal")
    return torch.randn(like.shape, generator=stream, dtype=like.dtype)


def same(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
