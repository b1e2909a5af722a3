"""LEO's losses, their parts and gradients, as its authors' own program computes them.

The plain loop of the benchmark is held to the same figures: it is the oracle of other tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import leo as loop
from metaforge import losses
from metaforge.components import Context
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_leo.algorithm import Leo
from metaforge_leo.options import LeoOptions
from tests.plugins.leo_cases import gradient

FILE = Path(__file__).parents[1] / "golden" / "leo_5shot_f64.npz"
SHAPE = TaskShape("classification", (640,), 5, shots=5, queries=15)
#: Figures that the file holds, or penalties that its program weights, rounded to float32.
ROUNDED = 2e-7
MODES = pytest.mark.parametrize("mode", ["mean", "noise"])


class Golden:
    """The file's arrays, as inputs of ours and figures of one mode."""

    def __init__(self, mode: str, dtype: torch.dtype = torch.float64):
        with np.load(FILE) as arrays:
            every = {name: torch.from_numpy(arrays[name]) for name in arrays}
        self.training = mode == "noise"
        head = f"s5_{mode}_"
        self.figures = {
            name.removeprefix(head): value.double()
            for name, value in every.items()
            if name.startswith(head)
        }
        config = {k.removeprefix("cfg_"): v.item() for k, v in every.items() if k[:4] == "cfg_"}
        self.leo = Leo(LeoOptions(**config), Context(dtype=str(dtype).removeprefix("torch.")))
        fresh = self.leo.init(SHAPE, torch.Generator().manual_seed(0))
        self.params: Params = {
            name: every[f"var_{name}"].to(dtype).requires_grad_() for name in fresh
        }
        assert len(fresh) == sum(name.startswith("var_") for name in every)
        self.tasks = tasks_of(every["x_5shot"].to(dtype))
        self.noise = {
            "latents": every["noise_lat_5shot"].to(dtype),
            "decoder": every["noise_dec_5shot"].to(dtype),
        }

    def outcome(self) -> Any:
        return self.leo.outcome(self.params, self.tasks, training=self.training, noise=self.noise)


def tasks_of(x: Tensor) -> TaskBatch:
    x = F.normalize(x, dim=-1)
    y = torch.arange(5)[:, None].expand(x.shape[:3])
    parts = (x[:, :, :5], y[:, :, :5], x[:, :, 5:], y[:, :, 5:])
    return TaskBatch(*(part.flatten(1, 2) for part in parts))


@pytest.fixture(params=["mean", "noise"])
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def agrees(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    """Every entry, relative to itself; entries a thousand times below the largest, to that."""
    floor = 1e-3 * tolerance * float(expected.abs().max())
    found = found.detach().double().reshape(expected.shape)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=floor)


def test_losses_and_their_parts(golden: Golden) -> None:
    outcome, figures = golden.outcome(), golden.figures
    agrees(outcome.loss + golden.leo.penalty(golden.params), figures["per_task_loss"])
    agrees(outcome.query_loss, figures["val_loss"])
    agrees(outcome.kl, figures["kl"])
    agrees(outcome.encoder_penalty, figures["encoder_penalty"], ROUNDED)
    assert golden.tasks.query_y is not None
    per_sample = losses.per_sample(outcome.query_logits, golden.tasks.query_y)
    agrees(per_sample, figures["val_loss_per_sample"])
    accuracy = losses.scores(outcome.query_logits, golden.tasks)
    agrees(accuracy, figures["val_acc"], ROUNDED)
    agrees(accuracy, figures["per_task_acc"], ROUNDED)


def test_regularisers(golden: Golden) -> None:
    both = golden.figures["l2_reg"] + golden.figures["orth_reg"]
    agrees(golden.leo.penalty(golden.params).expand(2), both, ROUNDED)
    off = {"l2_reg": "orthogonality_penalty_weight", "orth_reg": "l2_penalty_weight"}
    for figure, other in off.items():
        options = golden.leo.options.model_copy(update={other: 0.0})
        alone = Leo(options, golden.leo.context).penalty(golden.params)
        agrees(alone.expand(2), golden.figures[figure], ROUNDED)


def test_inner_loops(golden: Golden) -> None:
    done, figures = golden.outcome().adaptation, golden.figures
    agrees(done.latents[0], figures["latents"])
    copies = figures["adapted_weights"]  # rounded, so that their mean is off by as much
    difference = done.weights[0].detach() - copies.mean(2)
    assert difference.abs().max() <= ROUNDED * copies.abs().max()
    support_loss = losses.per_sample(done.logits[5], golden.tasks.support_y).mean(1)
    agrees(support_loss, figures["train_loss_after_latent"])
    assert len(done.latents) == 6
    assert len(done.weights) == 6


def test_gradients_of_all_seven_tensors(golden: Golden) -> None:
    total = golden.outcome().loss.mean() + golden.leo.penalty(golden.params)
    agrees(total, golden.figures["total_loss"])
    for name, value in gradient(total, golden.params).items():
        agrees(value, golden.figures[f"grad_{name}"], 1e-6)
        agrees(value.norm(), golden.figures[f"gradnorm_{name}"])


def test_the_loss_by_losses_and_by_outcome(golden: Golden) -> None:
    found = golden.leo.losses(
        golden.params, golden.tasks, training=golden.training, noise=golden.noise
    )
    assert torch.equal(found, golden.outcome().loss)


def test_the_plain_loop(golden: Golden) -> None:
    figures, options = golden.figures, golden.leo.options
    noise = None
    if golden.training:
        rows = {"latents": (1, 2), "decoder": (2, 3)}
        noise = {name: value.flatten(*rows[name]) for name, value in golden.noise.items()}
    parts = [
        loop.task_loss(golden.params, task, options, own)
        for task, own in loop.split(golden.tasks, noise)
    ]

    def stacked(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in parts])

    total = stacked("loss") + loop.penalty(golden.params, options)
    agrees(total, figures["per_task_loss"])
    agrees(stacked("codes"), figures["latents"])
    agrees(stacked("weights"), figures["adapted_weights"], 1e-6)
    agrees(stacked("support_loss"), figures["train_loss_after_latent"])
    agrees(stacked("kl"), figures["kl"])
    agrees(stacked("encoder_penalty"), figures["encoder_penalty"], ROUNDED)
    for name, value in gradient(total.mean(), golden.params).items():
        agrees(value, figures[f"grad_{name}"], 1e-6)


@MODES
def test_float32(mode: str) -> None:
    golden = Golden(mode, torch.float32)
    outcome = golden.outcome()
    agrees(outcome.query_loss, golden.figures["val_loss"], 1e-6)
    agrees(outcome.adaptation.weights[0], golden.figures["adapted_weights"].mean(2), 2e-3)
    # half the stds are at their bound of 1e-10: the divergence is right in float32 all the same
    agrees(outcome.kl, golden.figures["kl"], 1e-5)
    total = outcome.loss.mean() + golden.leo.penalty(golden.params)
    for name, value in gradient(total, golden.params).items():
        expected = golden.figures[f"grad_{name}"]
        assert (value.double() - expected).norm() <= 2e-4 * expected.norm(), name
