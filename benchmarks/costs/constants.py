"""The constants of ``benchmarks.costs.model``, measured on the device in use, and the model held to
sizes that it was not fitted to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import conditioning, harness
from benchmarks.conditioning import KEPT, WIDTH
from benchmarks.costs.model import Constants, Plan, scores
from benchmarks.scores import bank, signatures
from metaforge import together
from metaforge.conditioning import Arm, Conditioner, Recall
from metaforge.gram import KernelGram
from metaforge.metatrain import WarmStart
from metaforge.recipe.schema import Recipe
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import Tasml

#: The bank and the targets that the solve's rates are measured on.
BANK, TARGETS = 6000, 256
SHOTS, BATCH = 5, 12
#: Targets at once where the device gains from it.
TOGETHER = 64


def measured() -> Constants:
    """Every constant of the device in use."""
    call, task = _fitted(_at_once())
    return Constants(call, task, _at_once(), _signature(), *_rates())


def _at_once() -> int:
    return 1 if harness.context().device == "cpu" else TOGETHER


def _fitted(targets: int) -> tuple[float, float]:
    """``call`` and ``task``, of steps of several sizes."""
    sizes = [(t, b) for t in sorted({1, targets}) for b in (4, 24)]
    tasks = [t * (b + 1) for t, b in sizes]
    found = [step_seconds(batch=b, targets=t) for t, b in sizes]
    (call, task), *_ = np.linalg.lstsq(np.stack([np.ones(len(tasks)), tasks], 1), found)
    return max(0.0, float(call)), float(task)


def step_seconds(batch: int, targets: int = 1, steps: int = 40) -> float:
    """Of a step of conditioning: what more steps take more, a target's start left out."""
    few, many = (condition(batch, targets, n) for n in (10, 10 + steps))
    few(), many()  # to warm up
    pairs = [(_seconds(many), _seconds(few)) for _ in range(5)]
    return statistics.median(more - less for more, less in pairs) / steps


def condition(batch: int, targets: int, steps: int) -> Callable[[], Any]:
    source, algorithm, theta = conditioning.setting(WIDTH, SHOTS)
    settings = conditioning.recipe(steps).model_dump(mode="json", by_alias=True)
    settings["condition"]["batch"] = batch
    conditioner = Conditioner(Recipe.model_validate(settings), source, algorithm, WarmStart(theta))
    arm = Arm("conditional", Recall.uniform(np.arange(KEPT)), 1.0, 1.0)
    tasks = source.batch("test", range(targets))
    if targets == 1:
        return lambda: conditioner.run(tasks, arm, [steps], lambda theta: None)
    arms = [arm] * targets
    return lambda: together.condition(conditioner, tasks, arms, [steps], lambda theta: None)


def _signature(n_tasks: int = 2000) -> float:
    """Of a bank task: gathered, and its mean taken."""
    source, _, _ = conditioning.setting(WIDTH, SHOTS)
    kernel = Gaussian(GaussianOptions(gamma=50.0))
    kernel.fit(source.batch("train", range(100)), torch.Generator().manual_seed(0))

    def call() -> None:
        for start in range(0, n_tasks, 500):
            kernel.signature(source.batch("train", range(start, start + 500)).without_query())

    return _best(call) / n_tasks


def _rates() -> tuple[float, float, float, float]:
    """Operations a second of K, of its factor, of landmarks' features, and of solves."""
    gram, groups, m = bank(BANK), torch.full((BANK,), -1), Plan.landmarks
    cross, exact, nystrom = _cross(gram), _weighting("exact"), _weighting("nystrom")
    state = exact.fit(gram, groups)
    matrix = _best(gram.dense)
    kernel = BANK**2 * WIDTH / matrix
    factor = _best(lambda: exact.fit(gram, groups)) - matrix
    basis = _best(lambda: nystrom.fit(gram, groups)) - 2 * BANK * m * WIDTH / kernel
    solve = _best(lambda: exact.weights(state, cross, cross[0]))
    return (
        kernel,
        BANK**3 / 3 / factor,
        10 * BANK * m**2 / basis,
        2 * BANK**2 * TARGETS / solve,
    )


def _cross(gram: KernelGram) -> Tensor:
    return gram.kernel.gram(gram.signatures(), signatures(TARGETS, WIDTH, seed=1))


def _weighting(solver: str) -> Tasml:
    options = TasmlOptions.model_validate({"lambda": "n^-1/2", "solver": solver})
    return Tasml(options, harness.context())


def _best(call: Callable[[], Any], rounds: int = 3) -> float:
    call()
    return statistics.median(_seconds(call) for _ in range(rounds))


def _seconds(call: Callable[[], Any]) -> float:
    harness.synchronize()
    start = time.perf_counter()
    call()
    harness.synchronize()
    return time.perf_counter() - start


# -- held out ------------------------------------------------------------------------------


def held_out(device: Constants) -> str:
    """Markdown: what the model says of sizes that it was not fitted to, and what they take."""
    plan = Plan(0, 0, "exact")
    step = device.call + device.together * (BATCH + 1) * device.task
    lines = ["| held out | by the model | measured |", "| --- | ---: | ---: |"]
    found = step_seconds(BATCH, device.together)
    lines.append(_line(f"a step of {device.together} x {BATCH + 1} tasks", step, found))
    for solver, n_tasks in (("exact", 9000), ("nystrom", 20_000), ("cg", 4000)):
        took, facts = _scored(solver, n_tasks)
        own = replace(
            plan,
            bank=n_tasks,
            targets=TARGETS,
            solver=solver,
            iterations=int(facts.get("iterations", 0)),
        )
        expected = scores(own, replace(device, signature=0.0))
        turns = f", {own.iterations} iterations" if own.iterations else ""
        name = f"{solver}, {n_tasks:,} tasks, {TARGETS} targets{turns}"
        lines.append(_line(name, expected, took))
    return "\n".join(lines)


def _scored(solver: str, n_tasks: int) -> tuple[float, dict[str, float]]:
    """Seconds of the kernel's values, the solve and the scores, and what the solver tells."""
    weighting, groups = _weighting(solver), torch.full((n_tasks,), -1)
    gram, facts = bank(n_tasks), {}

    def call() -> None:
        cross = _cross(gram)
        state = weighting.fit(gram, groups)
        weighting.weights(state, cross, cross[0])
        facts.update(weighting.report(state))

    return _seconds(call), facts


def _line(name: str, expected: float, found: float) -> str:
    return f"| {name} | {1e3 * expected:.3g} ms | {1e3 * found:.3g} ms |"
