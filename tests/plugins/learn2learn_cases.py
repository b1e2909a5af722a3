"""What the tests of learn2learn share: float64 algorithms, and their formulas by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaforge import losses
from metaforge.contracts import Model, Params
from metaforge.optional import LEARN2LEARN
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters
from metaforge_learn2learn.algorithm import Learn2learn
from metaforge_learn2learn.options import Learn2learnOptions
from tests.plugins.maml_cases import CONTEXT, MODELS

NEEDS_LEARN2LEARN = pytest.mark.skipif(
    bool(LEARN2LEARN.missing), reason="learn2learn is not installed"
)

#: The algorithms, by their options.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "MAML": {},
    "ANIL": {"adapt": "head"},
    "MetaSGD": {"algorithm": "MetaSGD"},
    "MetaSGD, head": {"algorithm": "MetaSGD", "adapt": "head"},
    "meta-curvature": {"algorithm": "GBML"},
    "Kronecker": {"algorithm": "GBML", "transform": "kronecker"},
    "Kronecker, head": {"algorithm": "GBML", "transform": "kronecker", "adapt": "head"},
}


def made(model: str | Model | nn.Module = "mlp", **options: Any) -> Learn2learn:
    ready = MODELS[model] if isinstance(model, str) else model
    return Learn2learn(Learn2learnOptions(**options), CONTEXT, model=ready)


def started(
    model: str | Model | nn.Module, shape: TaskShape, **options: Any
) -> tuple[Learn2learn, Params]:
    """An initialised float64 algorithm, and its parameters ready for gradients."""
    algorithm = made(model, **options)
    return algorithm, fresh_parameters(algorithm, shape)


class ByHand:
    """theta_{t+1} = theta_t - update(g_t), written out for a model of affine layers whose last
    is ``output``: what learn2learn must compute."""

    def __init__(self, module: nn.Module, options: Learn2learnOptions):
        self.module, self.options = module, options
        self.adapts = [
            name
            for name, _ in module.named_parameters()
            if options.adapt == "all" or name.startswith("output.")
        ]

    def losses(
        self, theta: Params, tasks: TaskBatch, held: list[list[Params]] | None = None
    ) -> Tensor:
        """[B]; with ``held``, the gradients of each task's steps, at order 1."""
        found = []
        for b in range(len(tasks)):
            adapted = dict(theta)
            for step in range(self.options.steps):
                g = held[b][step] if held else self._gradient(adapted, tasks, b)
                adapted |= {k: adapted[k] - self._update(theta, k, g[k]) for k in self.adapts}
            found.append(self._loss(adapted, tasks.query_x, tasks.query_y, tasks.query_mask, b))
        return torch.stack(found)

    def gradients(self, theta: Params, tasks: TaskBatch) -> list[list[Params]]:
        """[task][step]: the gradients of the adaptation from theta, as constants."""
        theta = {name: value.detach().requires_grad_() for name, value in theta.items()}
        found: list[list[Params]] = []
        for b in range(len(tasks)):
            adapted, steps = dict(theta), []
            for _ in range(self.options.steps):
                g = {k: v.detach() for k, v in self._gradient(adapted, tasks, b).items()}
                adapted |= {k: adapted[k] - self._update(theta, k, g[k]) for k in self.adapts}
                steps.append(g)
            found.append(steps)
        return found

    @torch.enable_grad()
    def _gradient(self, adapted: Params, tasks: TaskBatch, b: int) -> Params:
        loss = self._loss(adapted, tasks.support_x, tasks.support_y, tasks.support_mask, b)
        found = torch.autograd.grad(loss, [adapted[k] for k in self.adapts], create_graph=True)
        return dict(zip(self.adapts, found, strict=True))

    def _loss(self, theta: Params, x: Any, y: Any, mask: Any, b: int) -> Tensor:
        own = {name: theta[name] for name, _ in self.module.named_parameters()}
        outputs = functional_call(self.module, own, (x[b],))
        return losses.task_losses(outputs[None], y[b : b + 1], mask[b : b + 1])[0]

    def _update(self, theta: Params, name: str, g: Tensor) -> Tensor:
        options = self.options
        if options.algorithm == "MAML":
            return options.lr * g
        if options.algorithm == "MetaSGD":
            return theta[f"lr.{name}"] * g
        t = {k.removeprefix(f"transform.{name}."): v for k, v in theta.items()}
        if options.transform == "kronecker":
            square = g if g.ndim == 2 else g[:, None]
            moved = t["left"].T @ t["left"] @ square @ t["right"].T @ t["right"]
            return options.lr * moved.reshape(g.shape)
        return options.lr * (t["mc"] * g if g.ndim == 1 else t["mc_in"] @ g @ t["mc_out"])


def off_identity(params: Params) -> Params:
    """theta with learned rates and transforms away from where they start, where the identity
    could hide a wrong term."""
    random = torch.Generator().manual_seed(1)
    return {
        name: (
            value.detach() + 0.1 * torch.randn(value.shape, generator=random, dtype=value.dtype)
        ).requires_grad_()
        for name, value in params.items()
    }
