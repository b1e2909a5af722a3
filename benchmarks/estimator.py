"""``fit`` of the scikit-learn face for 5 classes of 5 samples, on a learner that is loaded.

The floor of J steps is that of ``benchmarks.conditioning``: the five products of the feature map on
the rows of each step's bank batch and of the support. Everything else that ``fit`` does (checking
the samples, the kernel against the bank and the solve of the scores, drawing, gathering, the
optimiser, the closed form, the model) is overhead. At J = 0 the time itself is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from benchmarks import harness
from benchmarks.conditioning import BATCH, FLOOR, KEPT, floor, recipe, setting
from benchmarks.harness import Row, compare
from benchmarks.ls import QUERIES, WAYS, WIDTH
from metaforge.learner.learner import Learner
from metaforge.metatrain import WarmStart
from metaforge.stages import Parts

SHOTS, BANK, STEPS = 5, 2000, 50
#: What ``fit`` may take at J = 0.
_LEAST = "20 ms"


def rows() -> Iterator[Row]:
    from metaforge.sklearn import ConditionalClassifier

    learner = _learner()
    rng = np.random.default_rng(0)
    x = rng.random((WAYS * SHOTS, WIDTH), dtype=np.float32)
    y = np.repeat(np.arange(WAYS), SHOTS)
    n_rows = BATCH * WAYS * (SHOTS + QUERIES) + WAYS * SHOTS
    conditional, plain = (ConditionalClassifier(learner, steps=steps) for steps in (STEPS, 0))
    conditional.fit(x, y)  # the bank is scored at first use
    yield compare(
        f"fit of scikit-learn's face, ls {WIDTH}-{WIDTH}, {WAYS} x {SHOTS} samples, J = {STEPS}",
        {
            FLOOR: floor(learner.start.theta, n_rows, STEPS),
            "metaforge": lambda: conditional.fit(x, y),
        },
        peer=FLOOR,
        target={"metaforge": 1 / 1.3},
        note=f"bank of {BANK}, batches of {BATCH}, M = {KEPT}",
        rounds=5,
        least_seconds=0.0,
    )
    yield compare(
        f"fit of scikit-learn's face, ls {WIDTH}-{WIDTH}, {WAYS} x {SHOTS} samples, J = 0",
        {_LEAST: partial(time.sleep, 0.02), "metaforge": lambda: plain.fit(x, y)},
        peer=_LEAST,
        target={"metaforge": 1.0},
        note="against 20 ms of waiting",
    )


def _learner() -> Learner:
    source, _, theta = setting(WIDTH, SHOTS)
    made = recipe(
        STEPS,
        bank={"size": BANK},
        kernel={"use": "gaussian", "bandwidth": "median"},
        threads=torch.get_num_threads(),  # those of the floor
    )
    parts = Parts.build(made, harness.context(), source=source)
    return Learner(parts, WarmStart(theta), {})
