"""What a run costs by a model, for banks and targets that are too many to try.

Seconds of each phase from a handful of constants of a device, which ``benchmarks.constants``
measures, or counts for a card that is not at hand. The formulas are those of docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import torch

from metaforge_weightings.needs import BLOCKS, needed

#: Right-hand sides that share the passes of ``cg`` over K.
SHARING = 64 * BLOCKS


@dataclass(frozen=True)
class Constants:
    """What a device takes.

    call       seconds of a step, whatever its tasks
    task       seconds more for each task of a step
    together   targets conditioned at once
    signature  seconds of a bank task's signature
    kernel     operations a second (float64) of the kernel's values
    factor     the same of a Cholesky factor
    basis      the same of the landmarks' features and their singular value decomposition
    solve      the same of solves and products with many right-hand sides
    bandwidth, latency  bytes a second and seconds of an exchange between ranks
    """

    call: float
    task: float
    together: int
    signature: float
    kernel: float
    factor: float
    basis: float
    solve: float
    bandwidth: float = float("inf")
    latency: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A run's sizes: N bank tasks, T targets, S steps of meta-training on B tasks, J steps a
    target on as many and its own, an arm beside the unconditional one; signatures of so many
    columns, so many landmarks and iterations of ``cg``; bytes of theta."""

    bank: int
    targets: int
    solver: str
    meta_steps: int = 10_000
    steps: int = 100
    batch: int = 12
    columns: int = 640
    landmarks: int = 1000
    iterations: int = 60
    theta_bytes: int = 4 * 2 * 640 * 640


def seconds(plan: Plan, device: Constants, ranks: int = 1) -> dict[str, float]:
    """Of each phase, by ``ranks`` devices."""
    return {
        "meta-training": plan.meta_steps * meta_step(plan, device, ranks),
        "scores": scores(plan, device),
        "targets": conditioning(plan, device, ranks),
    }


def meta_step(plan: Plan, device: Constants, ranks: int = 1) -> float:
    exchange = 2 * (ranks - 1) * (plan.theta_bytes / device.bandwidth / ranks + device.latency)
    return device.call + ceil(plan.batch / ranks) * device.task + exchange


def conditioning(plan: Plan, device: Constants, ranks: int = 1) -> float:
    """Targets split over ranks, each taking several at once."""
    own = ceil(plan.targets / ranks)
    calls = ceil(own / device.together)
    return plan.steps * (calls * device.call + own * (plan.batch + 1) * device.task)


def scores(plan: Plan, device: Constants) -> float:
    """Signatures, the solve and the targets' scores, on one device whatever the ranks."""
    n, t, p = plan.bank, plan.targets, plan.columns
    crossing = 2 * n * t * p / device.kernel  # v(D) of every target
    return n * device.signature + crossing + _SOLVERS[plan.solver](plan, device)


def _exact(plan: Plan, device: Constants) -> float:
    n, t, p = plan.bank, plan.targets, plan.columns
    return n**2 * p / device.kernel + n**3 / 3 / device.factor + 2 * n**2 * t / device.solve


def _cg(plan: Plan, device: Constants) -> float:
    """A trial of 64 columns and then the targets: half of K anew at every iteration, a product
    and the preconditioner's two for each right-hand side."""
    n, m = plan.bank, plan.landmarks
    passes = 1 + ceil(plan.targets / SHARING)
    columns = 64 + plan.targets
    once = passes * n**2 * plan.columns / device.kernel
    return _features(plan, device) + plan.iterations * (
        once + columns * (2 * n**2 + 4 * n * m) / device.solve
    )


def _nystrom(plan: Plan, device: Constants) -> float:
    return _features(plan, device) + 2 * plan.bank * plan.targets * plan.landmarks / device.solve


def _features(plan: Plan, device: Constants) -> float:
    """Kernel values at the landmarks; of their features, five products' worth of work."""
    n, m = plan.bank, plan.landmarks
    return 2 * n * m * plan.columns / device.kernel + 10 * n * m**2 / device.basis


_SOLVERS = {"exact": _exact, "cg": _cg, "nystrom": _nystrom}


def memory(plan: Plan, off_cpu: bool) -> float:
    """Bytes that signatures and solver take (docs/scores.md)."""
    n, device = plan.bank, torch.device("cuda" if off_cpu else "cpu")
    solve, _ = needed(plan.solver, n, plan.landmarks, device, "gaussian")
    return 8 * n * plan.columns + solve


@dataclass(frozen=True)
class Column:
    """A device of the table and how many of it."""

    name: str
    device: Constants
    ranks: int
    bytes: float
    off_cpu: bool


def table(plans: Iterable[Plan], columns: Sequence[Column]) -> str:
    """Markdown: a line for each plan and device, ``-`` where its memory does not hold the solve."""
    lines = [
        "| bank tasks | targets | solver | on | meta-training | scores | targets | memory |",
        "| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for plan in plans:
        for column in columns:
            needed = memory(plan, column.off_cpu)
            found = seconds(plan, column.device, column.ranks)
            if needed > column.bytes:
                found["scores"] = float("nan")
            cells = [f"{plan.bank:,}", f"{plan.targets:,}", plan.solver, column.name]
            cells += [*map(duration, found.values()), f"{needed / 1e9:.3g} GB"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))


def duration(value: float) -> str:
    """Two digits, in the largest unit that there are two of, or seconds; ``-`` for none."""
    if value != value:
        return "-"
    name, size = next((unit for unit in _UNITS if value >= 2 * unit[1]), ("s", 1))
    return f"{value / size:.2g} {name}"
