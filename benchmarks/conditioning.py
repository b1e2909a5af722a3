"""Conditioning one target with ``ls`` against the matrix products that its steps cannot avoid.

The floor of a step is the five products of the feature map (see ``benchmarks.ls``) on the rows
of its bank batch and of the target's support; of a target, J times that. Everything else is
overhead: drawing, gathering the bank tasks, normalising, the closed form, the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.harness import Row, compare
from benchmarks.ls import QUERIES, WAYS, WIDTH, five_products
from metaforge.conditioning import Arm, Conditioner, Recall
from metaforge.contracts import Params
from metaforge.metatrain import WarmStart
from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.recipe.schema import Recipe
from metaforge.task_sizes import TaskSizes
from metaforge_ls.ls import Ls
from metaforge_ls.options import LsOptions

BATCH, KEPT = 12, 500
FLOOR = "floor: five products a step"


def rows() -> list[Row]:
    return [_row(shots=5, steps=100)]


def _row(shots: int, steps: int) -> Row:
    source = _source(shots)
    algorithm = Ls(LsOptions())
    theta = algorithm.init(source.shape, torch.Generator().manual_seed(0))
    conditioner = Conditioner(_recipe(steps), source, algorithm, WarmStart(theta))
    arm = Arm("conditional", Recall.uniform(np.arange(KEPT)), 1.0, 1.0)
    target = source.batch("test", [0])
    n_rows = BATCH * WAYS * (shots + QUERIES) + WAYS * shots
    return compare(
        f"conditioning one target, ls {WIDTH}-{WIDTH}, {shots}-shot, J = {steps}",
        {
            FLOOR: _floor(theta, n_rows, steps),
            "metaforge": lambda: conditioner.run(target, arm, [steps], lambda params: None),
        },
        peer=FLOOR,
        target={"metaforge": 1 / 1.3},
        note=f"batches of {BATCH}, {WAYS}-way {QUERIES}-query, M = {KEPT}",
        rounds=5,
        least_seconds=0.0,
        memory=True,
    )


def _source(shots: int) -> PooledTasks:
    """Random features: 40 images of each of 40 training classes, and as many to test on."""
    each, splits = 40, {"train": range(40), "val": range(40, 60), "test": range(60, 80)}
    x = torch.rand(80 * each, WIDTH, generator=torch.Generator().manual_seed(0))
    pools = {
        split: [
            Pool(
                split,
                tuple(np.arange(c * each, (c + 1) * each) for c in classes),
                tuple(map(str, classes)),
            )
        ]
        for split, classes in splits.items()
    }
    return PooledTasks(
        x,
        pools,
        TaskSizes(WAYS, shots, QUERIES),
        seed=0,
        name="random features",
    )


def _recipe(steps: int) -> Recipe:
    return Recipe.model_validate(
        {
            "data": {"use": "arrays"},
            "inner": {"use": "ls"},
            "condition": {"steps": steps, "batch": BATCH, "optimizer": {"lr": 1e-4}},
        }
    )


def _floor(theta: Params, n_rows: int, steps: int) -> Callable[[], None]:
    step = five_products(
        theta, torch.rand(n_rows, WIDTH, generator=torch.Generator().manual_seed(1))
    )

    def every_step() -> None:
        for _ in range(steps):
            step()

    return every_step
