"""ls against the figures of its authors' own program: losses, gradients, steps of Adam."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from metaforge import losses, registry
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.diagnosis import TaskLosses
from metaforge.optimizers import OuterOptimizer
from metaforge.outer import OuterLoop, StepLoss
from metaforge.recipe.schema import Optimizer
from metaforge.tasks import TaskBatch, concatenate
from tests.plugins.ls_cases import gradients

FOLDER = Path(__file__).parents[1] / "golden"
SHOTS = pytest.mark.parametrize("shots", [1, 5], ids=["1-shot", "5-shot"])
#: {objective: (with task weights, scale of the target term)}
OBJECTIVES = {
    "plain": (False, 0.0),
    "weights": (True, 0.0),
    "target": (False, 1.0),
    "target_tw0.3": (False, 0.3),
    "target_weights": (True, 1.0),
}


def read(name: str) -> dict[str, Tensor]:
    with np.load(FOLDER / name) as arrays:
        return {key: torch.from_numpy(arrays[key]).double() for key in arrays}


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return read("ls_small_f64.npz")


@pytest.fixture(scope="module")
def trajectory() -> dict[str, Tensor]:
    return read("traj_small_f64.npz")


def theta(arrays: dict[str, Tensor]) -> Params:
    return {name: arrays[name].clone().requires_grad_() for name in ("w0", "w1")}


def episodes(x: Tensor, shots: int) -> TaskBatch:
    """Tasks of raw embeddings [task, class, sample, column], as they stand."""
    y = torch.arange(x.shape[1])[:, None].expand(x.shape[:3])
    parts = (x[:, :, :shots], y[:, :, :shots], x[:, :, shots:], y[:, :, shots:])
    return TaskBatch(*(part.flatten(1, 2) for part in parts))


def own_term(x: Tensor) -> TaskBatch:
    """(D, D) of a target, known by its support [1, class, sample, column]."""
    return episodes(x, x.shape[2]).support_as_query()


def ls(**options: float | bool) -> InnerAlgorithm:
    """As the golden figures have it; never initialised, which it does not need."""
    return registry.create("inner_algorithm", "ls", **options)


def per_task(
    algorithm: InnerAlgorithm,
    params: Params,
    arrays: dict[str, Tensor],
    shots: int,
    objective: str,
) -> Tensor:
    """[3]: each task's part of an objective, the target riding along as phase 3 does it."""
    weighted, target_scale = OBJECTIVES[objective]
    bank = episodes(arrays[f"x_{shots}shot"], shots)
    found = algorithm.losses(params, concatenate(bank, own_term(arrays[f"target_{shots}shot"])))
    weights = arrays["task_weights"] if weighted else torch.ones(3)
    return weights * found[:3] + target_scale * found[3]


@SHOTS
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_and_gradients(golden: dict[str, Tensor], objective: str, shots: int) -> None:
    head, params = f"s{shots}_{objective}", theta(golden)
    found = per_task(ls(), params, golden, shots, objective)
    torch.testing.assert_close(found, golden[f"{head}_per_task_loss"], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.mean(), golden[f"{head}_mean_loss"], rtol=1e-9, atol=0)
    found_gradients = gradients(found.mean(), params)
    for name, gradient in found_gradients.items():
        torch.testing.assert_close(gradient, golden[f"{head}_grad_{name}"], rtol=1e-9, atol=0)

    clipping = OuterOptimizer(params, Optimizer(clip_value=0.1, clip_norm=0.1))
    clipped = clipping.clip(list(found_gradients.values()))
    for name, gradient in zip(params, clipped, strict=True):
        expected = golden[f"{head}_clipped_{name}_norm"]
        torch.testing.assert_close(gradient.norm(), expected, rtol=1e-9, atol=0)


@SHOTS
def test_accuracy_and_the_target_term_alone(golden: dict[str, Tensor], shots: int) -> None:
    params = theta(golden)
    tasks = episodes(golden[f"x_{shots}shot"], shots)
    outputs = ls().predict(params, tasks.without_query(), tasks.query_x)
    expected = golden[f"s{shots}_plain_per_task_acc"]
    torch.testing.assert_close(losses.scores(outputs, tasks), expected, rtol=1e-6, atol=0)

    alone = ls().losses(params, own_term(golden[f"target_{shots}shot"]))
    added = golden[f"s{shots}_target_mean_loss"] - golden[f"s{shots}_plain_mean_loss"]
    torch.testing.assert_close(alone[0], added, rtol=1e-9, atol=0)


@SHOTS
def test_float32(golden: dict[str, Tensor], shots: int) -> None:
    single = {key: value.float() for key, value in golden.items()}
    params = theta(single)
    found = per_task(ls(), params, single, shots, "target_weights")
    assert found.dtype == torch.float32
    head = f"s{shots}_target_weights"
    torch.testing.assert_close(found, single[f"{head}_per_task_loss"], rtol=1e-5, atol=0)
    for name, gradient in gradients(found.mean(), params).items():
        expected = single[f"{head}_grad_{name}"]
        scale = float(expected.abs().max())
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("options", [{"ridge": 0.1001}, {"normalize": False}], ids=str)
def test_another_ridge_or_unnormalised_inputs_are_seen(
    golden: dict[str, Tensor], options: dict[str, float | bool]
) -> None:
    found = per_task(ls(**options), theta(golden), golden, 5, "plain")
    assert ((found / golden["s5_plain_per_task_loss"] - 1).abs() > 1e-6).all()


def test_inputs_normalised_by_their_source_give_the_same(golden: dict[str, Tensor]) -> None:
    x = golden["x_5shot"]
    unit = golden | {"x_5shot": x / x.norm(dim=-1, keepdim=True)}
    params = theta(golden)
    expected = per_task(ls(), params, golden, 5, "plain")
    for options in ({}, {"normalize": False}):
        found = per_task(ls(**options), params, unit, 5, "plain")
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


# -- steps of the outer optimiser ----------------------------------------------------------

RUNS = {
    "plain_lr1e-3": (0.0, {"clip_value": 0.1, "clip_norm": 0.1}),
    "target_lr1e-3_clip1e-3_5e-3": (1.0, {"clip_value": 1e-3, "clip_norm": 5e-3}),
}


@pytest.mark.parametrize("case", RUNS)
def test_20_steps_of_adam(trajectory: dict[str, Tensor], case: str) -> None:
    target_scale, clipping = RUNS[case]
    batches = [episodes(x, 5) for x in trajectory["batches"]]
    target = own_term(trajectory["target"])
    algorithm = ls()
    norms: list[Tensor] = []

    class Recording(OuterOptimizer):
        def clip(self, raw: list[Tensor]) -> list[Tensor]:
            clipped = super().clip(raw)
            norms.append(torch.stack([g.norm() for g in (*raw, *clipped)]))
            return clipped

    def objective(step: int, params: Params, extra: Params) -> StepLoss:
        tasks = concatenate(batches[step % 4], target)
        found = algorithm.losses(params, tasks, training=True)
        value = found[:4].mean() + target_scale * found[4]
        return StepLoss(value, (TaskLosses(found, tasks),))

    settings = Optimizer(lr=1e-3, eps_convention="tf1", **clipping)
    optimizer = Recording(theta(trajectory), settings)
    loop = OuterLoop(optimizer, algorithm, objective)
    for step in range(20):
        loop.advance(step + 1)
        assert loop.last is not None
        expected = trajectory[f"{case}_loss"][step]
        torch.testing.assert_close(loop.last.value, expected, rtol=1e-6, atol=0)
        raw, clipped = norms[-1].split(2)
        torch.testing.assert_close(raw, trajectory[f"{case}_gnorm"][step], rtol=1e-6, atol=0)
        torch.testing.assert_close(clipped, trajectory[f"{case}_cnorm"][step], rtol=1e-6, atol=0)
        for at, name in ((0, "after1"), (19, "final")):
            for key in ("w0", "w1") if step == at else ():
                expected = trajectory[f"{case}_{name}_{key}"]
                found = optimizer.params[key].detach()
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_torchs_eps_convention_goes_another_way(trajectory: dict[str, Tensor]) -> None:
    """The figures tell the conventions apart, so agreeing with them means something."""
    tasks = episodes(trajectory["batches"][0], 5)
    params = theta(trajectory)
    found = list(gradients(ls().losses(params, tasks).mean(), params).values())
    ends = {}
    for convention in ("torch", "tf1"):
        optimizer = OuterOptimizer(params, Optimizer(lr=1e-3, eps_convention=convention))
        optimizer.step(found)
        off = optimizer.params["w0"].detach() - trajectory["plain_lr1e-3_after1_w0"]
        ends[convention] = float(off.abs().max())
    assert ends["tf1"] < 1e-8
    assert ends["torch"] > 1e-5
