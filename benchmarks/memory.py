"""What 500 targets, conditioned one after another, leave in this process's memory."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.conditioning import KEPT, NARROW, recipe, setting
from benchmarks.harness import Row, resident
from metaforge.conditioning import Arm, Conditioner, Recall
from metaforge.metatrain import WarmStart
from metaforge.tasks import unpadded

CPU_ONLY = True
TARGETS, STEPS, MOST = 500, 5, 20 * 2**20
#: Targets before the count: over the first the allocator settles.
SETTLING = 20


def rows() -> list[Row]:
    source, algorithm, theta = setting(NARROW, shots=1)
    conditioner = Conditioner(recipe(STEPS), source, algorithm, WarmStart(theta))
    arm = Arm("conditional", Recall.uniform(np.arange(KEPT)), 1.0, 1.0)

    def one(t: int) -> None:
        target = unpadded(source.batch("test", [t]))
        conditioner.run(target, arm, [0, STEPS], lambda params: None)

    for t in range(SETTLING):
        one(t)
    before, start = resident(), time.perf_counter()
    for t in range(SETTLING, SETTLING + TARGETS):
        one(t)
    seconds, name = time.perf_counter() - start, f"metaforge, {TARGETS} targets"
    return [
        Row(
            "resident memory",
            name,
            {name: (seconds,)},
            note=f"growth, J = {STEPS}; at most {MOST // 2**20} MiB are promised",
            memory={name: max(0, resident() - before)},
            most={name: MOST},
        )
    ]
