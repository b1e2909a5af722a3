"""Every inner algorithm with every task weighting and every kernel, by name alone, and the
laws that hold whatever is combined."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metaforge
from metaforge import seeding, stages
from metaforge.components import Context
from metaforge.conditioning import Arm, Conditioner, Recall, draw
from metaforge.metatrain import MetaTrainer, WarmStart
from metaforge.optimizers import OuterOptimizer
from metaforge.recipe import load
from metaforge.tasks import unpadded

STEPS = {"model": {"use": "mlp", "hidden": [6]}, "steps": 2, "lr": 1.0}
INNERS: dict[str, dict[str, Any]] = {
    "maml": {"use": "maml", **STEPS},
    "maml by learn2learn": {"use": "maml", **STEPS, "backend": "learn2learn"},
    "ls": {"use": "ls", "hidden": 6},
    "r2d2": {"use": "r2d2", "hidden": 6},
    "leo": {"use": "leo"},
    "MetaSGD": {"use": "learn2learn", "algorithm": "MetaSGD", **STEPS},
    "unrolled": {"use": "unrolled", "optimizer": "adam", **STEPS, "lr": 0.1},
}
NEEDS = {"maml by learn2learn": "learn2learn", "MetaSGD": "learn2learn", "unrolled": "higher"}
WEIGHTINGS = ("tasml", "uniform", "uncertainty")
KERNELS = ("gaussian", "laplace", "linear")

inners = pytest.mark.parametrize(
    "inner",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None,
                reason=f"{NEEDS.get(name)} is not installed",
            ),
        )
        for name in INNERS
    ],
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> dict[str, Any]:
    """Two groups of classes, one far noisier than the other. (LEO's steps of size 1 need the
    many inputs.)"""
    folder = tmp_path_factory.mktemp("combinations")
    rng = np.random.default_rng(0)
    group = np.arange(30) % 2
    y = np.repeat(np.arange(30), 8)
    noise = rng.normal(size=(240, 64)) * np.where(group[y], 3.0, 0.2)[:, None]
    np.savez(folder / "d.npz", X=(rng.normal(size=(30, 64))[y] + noise).astype("f4"), y=y, g=group)
    return {
        "threads": 1,
        "precision": "float64",
        "output": str(folder / "runs"),
        "data": {
            "use": "arrays",
            "path": str(folder / "d.npz"),
            "normalize": "l2",
            "group": "g",
            "within": 1.0,
            "ways": 3,
            "shots": 2,
            "queries": 3,
        },
        "bank": {"size": 24},
        "meta_train": {"steps": 3, "batch": 4, "validate_every": 3, "validation_targets": 4},
        "condition": {"steps": 3, "batch": 4, "top_m": 5, "optimizer": {"lr": 1e-3}},
        "evaluate": {"targets": 3, "controls": ["topm_equal"], "workers": 1},
    }


@pytest.fixture(autouse=True)
def _cache(base, monkeypatch):
    """Phase 1 is shared between the kernels and weightings of an inner algorithm."""
    monkeypatch.setenv("METAFORGE_CACHE", str(Path(base["output"]).parent / "cache"))


def built(base: dict[str, Any], inner: str, *overrides: str) -> stages.Parts:
    recipe = load({**base, "inner": INNERS[inner]}, overrides).recipe
    return stages.Parts.build(recipe, stages.context_for(recipe, Context()))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@inners
def test_it_runs_and_starts_from_the_unconditional_learner(base, inner, weighting, kernel):
    changes = (f"weighting.use={weighting}", f"kernel.use={kernel}")
    results = metaforge.run({**base, "inner": INNERS[inner]}, *changes)
    folder = Path(results["run_dir"])
    records = [json.loads(line) for line in (folder / "targets.jsonl").read_text().splitlines()]
    assert len(records) == results["conditional"]["n"] == 3
    arms = {"conditional", "topm_equal"} if weighting == "tasml" else {"conditional"}
    parts = built(base, inner, *changes)
    theta = metaforge.records.load_tensors(folder / "artifacts" / "theta_hat.safetensors")[0]
    start = WarmStart.of(theta, parts.theta)
    for record in records:
        assert set(record["curves"]) == arms
        task = unpadded(parts.source.batch("test", [record["task_id"]]))
        outputs = parts.inner.predict(start.theta, task.without_query(), task.query_x)
        plain = float(metaforge.losses.scores(outputs, task))
        assert record["unconditional"] == plain
        assert all(curve[0] == plain for curve in record["curves"].values())


def conditioned(parts: stages.Parts, recall: Recall, start: WarmStart, beta2: float = 1.0):
    """theta after J steps on target 0 of the test split."""
    ends: list[dict[str, torch.Tensor]] = []
    Conditioner(parts.recipe, parts.source, parts.inner, start).run(
        parts.source.batch("test", [0]),
        Arm("conditional", recall, 1.0, beta2),
        [parts.recipe.condition.steps],
        lambda params: ends.append({k: v.clone() for k, v in params.items()}),
    )
    return ends[0]


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@inners
def test_weights_reach_the_loss(base, inner):
    parts = built(base, inner)
    start, ids = WarmStart(parts.theta), np.arange(4)
    equal = conditioned(parts, Recall.uniform(ids), start)
    one = conditioned(parts, Recall(ids, np.array([1.0, 0.0, 0.0, 0.0])), start)
    assert distance(one, equal) > 1e-4
    ignored = built(base, inner, "condition.weights_in_loss=topm-uniform")
    unread = conditioned(ignored, Recall(ids, np.array([1.0, 0.0, 0.0, 0.0])), start)
    assert distance(unread, equal) == 0.0, "weights that do not reach the loss are told apart"


@inners
def test_uniform_over_the_bank_is_further_meta_training(base, inner):
    """Remark 1: M = N, beta2 = 0, the same ids, noise and optimiser state."""
    parts = built(base, inner, "weighting.use=uniform", "condition.optimizer_state=meta-train")
    settings, algorithm = parts.recipe.condition, parts.inner
    plain = OuterOptimizer(parts.theta, settings.optimizer)

    def step(ids, *stream):
        tasks = parts.source.batch("train", ids)
        noise = algorithm.draw_noise(seeding.generator(parts.recipe.seed, *stream), len(ids))
        loss = algorithm.losses(plain.params, tasks, training=True, noise=noise).mean()
        penalty = algorithm.penalty(plain.params)
        loss = loss if penalty is None else loss + penalty
        plain.step(list(torch.autograd.grad(loss, list(plain.params.values()))))

    for first in range(3):
        step(np.arange(first, first + 4), "metatrain/noise", first)
    start = WarmStart.of(plain.state(), plain.params)
    recall = Recall.uniform(np.arange(parts.recipe.bank.size))
    ids = draw(recall, settings, seeding.derive(parts.recipe.seed, "condition/draws", 0)).ids
    for j in range(settings.steps):
        step(ids[j], "condition/noise", 0, j)
    end = conditioned(parts, recall, start, beta2=0.0)
    expected = {name: value.detach() for name, value in plain.params.items()}
    assert distance(end, expected) < 1e-12
    assert distance(conditioned(parts, recall, WarmStart(start.theta), 0.0), expected) > 1e-6


@inners
def test_learned_weights_leave_uniform_on_a_bank_of_unequal_noise(base, inner):
    parts = built(
        base,
        inner,
        "weighting={use: uncertainty, learning_rate: 0.1}",
        "meta_train.steps=120",
        "meta_train.optimizer.lr=2e-3",
    )
    trainer = MetaTrainer(parts.recipe, parts.source, parts.inner, parts.theta, parts.learned)
    trainer.run(lambda: None, lambda step, metrics: None)
    state = parts.weighting_state
    learned = {**state, "log_variance": trainer.optimizer.extra["log_variance"].detach()}
    nothing = torch.zeros(parts.recipe.bank.size, 1, dtype=torch.float64)
    weights = parts.weighting.weights(learned, nothing, nothing[0])[:, 0].numpy()
    noisy = np.asarray(parts.bank_groups) == 1
    assert weights[~noisy].mean() > 1.2 * weights[noisy].mean()
    before = parts.weighting.weights(state, nothing, nothing[0])[:, 0].numpy()
    assert np.ptp(before) == 0.0
