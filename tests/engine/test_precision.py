"""tf32 and bf16: what they change, what they leave, and what cannot have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import metaforge
from metaforge import outer, precision, seeding, stacked
from metaforge.components import Context
from metaforge.errors import PluginError, RecipeError
from metaforge.recipe import load
from metaforge.testing.inner_algorithms import toy_tasks
from metaforge_ls import closed_form
from tests.engine.toys import Quadratic, recipe
from tests.plugins.ls_cases import WIDE, ls, r2d2
from tests.plugins.maml_cases import IMAGES, Tanh, maml
from tests.small import SMALL

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
PLAIN, MIXED = Context(), Context(mixed=True)


# -- tf32 ----------------------------------------------------------------------------------


def test_tf32_is_in_force_for_steps_on_cuda_and_put_back():
    before = torch.get_float32_matmul_precision()
    assert before == "highest"
    with precision.steps("tf32", CUDA):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(ZeroDivisionError), precision.steps("tf32", CUDA):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(("kind", "device"), [("tf32", CPU), ("float32", CUDA), ("bf16", CUDA)])
def test_nothing_else_touches_it(kind, device):
    with precision.steps(kind, device):
        assert torch.get_float32_matmul_precision() == "highest"


def test_steps_of_both_phases_run_within_it(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(outer.OuterLoop, "_device", lambda self: CUDA)
    own = outer.OuterLoop._one

    def watched(self, step, **kind):
        seen.append((self.where.split()[0], torch.get_float32_matmul_precision()))
        return own(self, step, **kind)

    monkeypatch.setattr(outer.OuterLoop, "_one", watched)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    small = ("meta_train.steps=2", "evaluate.targets=2", "evaluate.workers=1")
    changes = (*small, f"output={tmp_path}", "precision=tf32")
    metaforge.run(SMALL, *changes, quiet=True)
    assert set(seen) == {("meta-training", "high"), ("conditioning", "high")}
    assert torch.get_float32_matmul_precision() == "highest"


def test_on_a_cpu_it_is_float32_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    small = ("meta_train.steps=5", "evaluate.targets=3", f"output={tmp_path}")
    found, plain = (
        metaforge.run(SMALL, *small, f"precision={kind}", quiet=True)
        for kind in ("tf32", "float32")
    )
    lines = [(Path(r["run_dir"]) / "targets.jsonl").read_text() for r in (found, plain)]
    assert lines[0] == lines[1]
    assert any("tf32 does nothing on cpu" in note for note in found["notes"])
    assert not any("tf32" in note for note in plain["notes"])


# -- bf16 ----------------------------------------------------------------------------------


class Smooth(nn.Module):
    """A convolutional network without kinks: at those of relu and of a pooled greatest entry
    rounding chooses the side, which turns conv4's gradient on toy images by 20 degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(IMAGES.input_shape[0], 8, 3, padding=1)
        self.norm = nn.GroupNorm(1, 8)
        self.output = nn.Linear(8, IMAGES.outputs)
        random = seeding.generator(0, "smooth")
        for layer in (self.convolution, self.output):
            nn.init.uniform_(layer.weight, -0.5, 0.5, generator=random)
            nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = nn.functional.softplus(self.norm(self.convolution(x)))
        return self.output(found.mean((2, 3)))


CASES: dict[str, Any] = {
    "ls": (lambda context: ls(context=context), WIDE),
    "r2d2": (lambda context: r2d2(context=context), WIDE),
    "maml linear": (lambda context: maml("linear", context=context, steps=2), WIDE),
    "maml mlp": (lambda context: maml("mlp", context=context, steps=2), WIDE),
    "maml tanh": (lambda context: maml(Tanh(), context=context, steps=2), WIDE),
    "maml tanh, first order": (
        lambda context: maml(Tanh(), context=context, steps=2, order=1),
        WIDE,
    ),
    "maml loop": (lambda context: maml(Smooth(), context=context, steps=1, lr=0.1), IMAGES),
}


def step(make: Any, shape: Any, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses [B] and the flat gradient of their mean."""
    algorithm = make(context)
    params = algorithm.init(shape, seeding.generator(0, "init"))
    params = {name: value.requires_grad_() for name, value in params.items()}
    tasks = toy_tasks(shape).to(dtype=torch.float32)
    losses = algorithm.losses(params, tasks, training=True)
    found = torch.autograd.grad(losses.mean(), list(params.values()))
    assert all(gradient.dtype == torch.float32 for gradient in found)
    return losses.detach(), torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize(("make", "shape"), CASES.values(), ids=CASES)
def test_a_step_in_bf16_is_near_that_in_float32(make, shape):
    (losses, gradient), (found, own) = step(make, shape, PLAIN), step(make, shape, MIXED)
    assert found.dtype == torch.float32
    assert not torch.equal(found, losses), "forward passes are in bfloat16"
    torch.testing.assert_close(found, losses, rtol=0.05, atol=0.02)
    cosine = torch.nn.functional.cosine_similarity(own, gradient, dim=0)
    assert cosine > 0.98, float(cosine)


@pytest.mark.parametrize("name", ["ls", "maml mlp"])
def test_copies_of_theta_at_once_are_in_bf16_too(name):
    make, shape = CASES[name]
    algorithm = make(MIXED)
    params = algorithm.init(shape, seeding.generator(0, "init"))
    copies = {k: torch.stack([v, 1.1 * v]).requires_grad_() for k, v in params.items()}
    tasks = toy_tasks(shape).to(dtype=torch.float32)
    assert algorithm.vmappable
    found = stacked.losses(algorithm, copies, tasks[[0, 1, 2, 0, 1, 2]])
    alone = torch.stack(
        [
            algorithm.losses({k: v[t] for k, v in copies.items()}, tasks, training=True)
            for t in range(2)
        ]
    )
    torch.testing.assert_close(found, alone, rtol=0.05, atol=0.02)
    assert all(g.isfinite().all() for g in torch.autograd.grad(found.sum(), list(copies.values())))


def test_solves_and_losses_stay_in_float32(monkeypatch):
    seen = []
    solve, loss = closed_form.ridge_weights, closed_form.ClosedForm._outputs

    def watched(x, y, ridge):
        seen.extend((x.dtype, y.dtype))
        return solve(x, y, ridge)

    def outputs(self, *arguments):
        found = loss(self, *arguments)
        seen.append(found.dtype)
        return found

    monkeypatch.setattr(closed_form, "ridge_weights", watched)
    monkeypatch.setattr(closed_form.ClosedForm, "_outputs", outputs)
    step(*CASES["ls"], MIXED)
    assert set(seen) == {torch.float32}


def test_a_forward_pass_without_autocast_is_seen():
    """The broken specimen of the law above: a network that keeps out of it."""

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(9, 3)

        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                return self.output(x)

    module = Apart()
    case = (lambda context: maml(module, context=context, steps=2), WIDE)
    with pytest.raises(AssertionError, match="forward passes"):
        test_a_step_in_bf16_is_near_that_in_float32(*case)


@pytest.mark.parametrize("use", ["leo", "unrolled", "learn2learn"])
def test_what_computes_in_one_precision_is_refused_by_validate(use):
    data = {"use": "glyphs"}
    with pytest.raises(RecipeError, match=f"precision: bf16 .* {use} computes in one precision"):
        load({"data": data, "inner": {"use": use}, "precision": "bf16"})


def test_what_validate_cannot_know_the_run_refuses():
    made = recipe(precision="bf16")
    with pytest.raises(RecipeError, match="quadratic computes in one precision"):
        precision.refuse(made, Quadratic())
    precision.refuse(recipe(precision="tf32"), Quadratic())
    with pytest.raises(PluginError, match="backend: learn2learn"):
        maml("mlp", context=MIXED, backend="learn2learn")


@pytest.mark.parametrize("inner", ["ls", "maml"])
def test_a_run_in_bf16(inner, monkeypatch, tmp_path):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    chosen = {"use": "ls", "hidden": 16} if inner == "ls" else SMALL["inner"]
    method = {**SMALL, "inner": chosen, "output": str(tmp_path)}
    changes = ("meta_train.steps=20", "evaluate.targets=4")
    found, plain = (
        metaforge.run(method, *changes, f"precision={kind}", quiet=True)
        for kind in ("bf16", "float32")
    )
    assert "bf16" in (Path(found["run_dir"]) / "log.txt").read_text()
    assert found["unconditional"]["mean"] != plain["unconditional"]["mean"]
    assert found["unconditional"]["mean"] == pytest.approx(plain["unconditional"]["mean"], rel=0.1)
