"""Tasks by their index: drawing them, and gathering a batch of 16 from a bank in memory.

The floor of a batch is indexing alone: the rows of its samples, known beforehand, out of the
class data. Drawing stands beside numpy's generator, which picks classes and samples task by task
and could not draw task i without those before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.conditioning import random_features
from benchmarks.harness import Row, compare, context
from benchmarks.ls import QUERIES, WAYS, WIDTH
from metaforge.sampling import id_array

BATCH, BANK, DRAWN, SHOTS = 16, 4096, 1024, 5


def rows() -> Iterator[Row]:
    yield gather()
    yield drawing()


def gather(rounds: int = 15) -> Row:
    source = random_features(WIDTH, SHOTS)
    batches = np.random.default_rng(0).integers(0, BANK, (8, BATCH))
    drawn = [source.index("train", ids) for ids in batches]
    for ids in np.arange(BANK).reshape(-1, 512):  # every table is drawn before
        source.index("train", ids)
    x = torch.rand(80 * 40, WIDTH, device=context().device)
    tables = [
        [torch.from_numpy(rows.reshape(BATCH, -1).astype(np.int64)).to(x.device) for rows in pair]
        for pair in ((some.support, some.query) for some in drawn)
    ]
    floor = "floor: indexing"
    return compare(
        f"a batch of {BATCH} tasks from a bank of {BANK}",
        {
            floor: lambda: [x[rows] for pair in tables for rows in pair],
            "metaforge": lambda: [source.batch("train", ids) for ids in batches],
        },
        peer=floor,
        note=f"8 batches, {WIDTH} features, {WAYS}-way {SHOTS}-shot {QUERIES}-query",
        rounds=rounds,
    )


def drawing(rounds: int = 15) -> Row:
    source = random_features(WIDTH, SHOTS)
    sampler, ids = source.sampler, id_array(range(10**6, 10**6 + DRAWN))
    random, peer = np.random.default_rng(0), "numpy, task by task"

    def plain() -> None:
        for _ in range(DRAWN):
            for _ in random.choice(40, WAYS, replace=False):
                random.choice(40, SHOTS + QUERIES, replace=False)

    return compare(
        f"drawing {DRAWN} tasks",
        {peer: plain, "metaforge": lambda: sampler.draw("train", ids)},
        peer=peer,
        note=f"{WAYS} of 40 classes, {SHOTS + QUERIES} of 40 samples",
        rounds=rounds,
    )
