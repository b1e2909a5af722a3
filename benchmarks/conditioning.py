"""Conditioning with ``ls``: one target against the matrix products that its steps cannot avoid, and
many targets against one.

The floor of a step is the five products of the feature map (see ``benchmarks.ls``) on the rows
of its bank batch and of the target's support; of a target, J times that. Everything else is
overhead: drawing, gathering the bank tasks, normalising, the closed form, the optimiser. Many
targets have nothing to add to that: their peer is one target's steps, as many times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.harness import Row, compare, here
from benchmarks.ls import QUERIES, WAYS, WIDTH, five_products
from metaforge import together
from metaforge.conditioning import Arm, Conditioner, Recall
from metaforge.contracts import Params
from metaforge.metatrain import WarmStart
from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.recipe.schema import Recipe
from metaforge.task_sizes import TaskSizes
from metaforge.tasks import unpadded
from metaforge_ls.ls import Ls
from metaforge_ls.options import LsOptions

BATCH, KEPT = 12, 500
FLOOR = "floor: five products a step"
ONE_BY_ONE, AT_ONCE = "metaforge, one by one", "metaforge, at once"
#: Of the rows of many targets: small, so that a hundred take seconds.
NARROW, BANK = 64, 1000
#: Targets conditioned at once.
TOGETHER = 32


def rows() -> Iterator[Row]:
    yield one_target(steps=100)
    yield from (targets(n, steps=100) for n in (1, 10, 100))


def one_target(steps: int, rounds: int = 5) -> Row:
    shots = 5
    source, algorithm, theta = setting(WIDTH, shots)
    conditioner = Conditioner(recipe(steps), source, algorithm, WarmStart(theta))
    arm = Arm("conditional", Recall.uniform(np.arange(KEPT)), 1.0, 1.0)
    target = source.batch("test", [0])
    n_rows = BATCH * WAYS * (shots + QUERIES) + WAYS * shots
    return compare(
        f"conditioning one target, ls {WIDTH}-{WIDTH}, {shots}-shot, J = {steps}",
        {
            FLOOR: floor(theta, n_rows, steps),
            "metaforge": lambda: conditioner.run(target, arm, [steps], lambda params: None),
        },
        peer=FLOOR,
        target={"metaforge": 1 / 1.3},
        note=f"batches of {BATCH}, {WAYS}-way {QUERIES}-query, M = {KEPT}",
        rounds=rounds,
        least_seconds=0.0,
    )


def targets(n: int, steps: int, rounds: int = 3) -> Row:
    """n targets, each with its own recall, one by one and at once."""
    source, algorithm, theta = setting(NARROW, shots=1)
    conditioner = Conditioner(recipe(steps), source, algorithm, WarmStart(theta))
    arms = [Arm("conditional", _recall(t), 1.0, 1.0) for t in range(n)]
    peer = f"{n} x one target's steps"

    def one(t: int) -> None:
        target = unpadded(source.batch("test", [t]))
        conditioner.run(target, arms[t], [steps], lambda params: None)

    def at_once() -> None:
        for start in range(0, n, TOGETHER):
            block = range(start, min(start + TOGETHER, n))
            batch, own = source.batch("test", block), arms[start : block.stop]
            together.condition(conditioner, batch, own, [steps], lambda params: None)

    return compare(
        f"conditioning {n} target{'s' * (n > 1)}, ls {NARROW}-{NARROW}, 1-shot, J = {steps}",
        {
            peer: lambda: [one(0) for _ in range(n)],
            ONE_BY_ONE: lambda: [one(t) for t in range(n)],
            AT_ONCE: at_once,
        },
        peer=peer,
        target={ONE_BY_ONE: 1 / 1.15},
        note=f"batches of {BATCH}, {WAYS}-way {QUERIES}-query, M = {KEPT}, {TOGETHER} at once",
        rounds=rounds,
        least_seconds=0.0,
    )


def _recall(target: int) -> Recall:
    kept = np.random.default_rng(target).choice(BANK, KEPT, replace=False)
    return Recall.uniform(np.sort(kept))


def setting(width: int, shots: int) -> tuple[PooledTasks, Ls, Params]:
    """A source, ``ls`` of as many hidden units as features, and theta."""
    source = random_features(width, shots)
    algorithm = Ls(LsOptions(), harness.context())
    return source, algorithm, algorithm.init(source.shape, torch.Generator().manual_seed(0))


def random_features(width: int, shots: int) -> PooledTasks:
    """40 images of each of 40 training classes, and as many to test on."""
    each, splits = 40, {"train": range(40), "val": range(40, 60), "test": range(60, 80)}
    x = torch.rand(80 * each, width, generator=torch.Generator().manual_seed(0))
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
        device=harness.context().device,
    )


def recipe(steps: int, **more: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "data": {"use": "arrays"},
            "inner": {"use": "ls"},
            "condition": {
                "steps": steps,
                "batch": BATCH,
                "top_m": KEPT,
                "optimizer": {"lr": 1e-4},
            },
            **more,
        }
    )


def floor(theta: Params, n_rows: int, steps: int) -> Callable[[], None]:
    x = here(torch.rand(n_rows, WIDTH, generator=torch.Generator().manual_seed(1)))
    step = five_products(theta, x)

    def every_step() -> None:
        for _ in range(steps):
            step()

    return every_step
