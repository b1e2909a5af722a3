"""T copies of theta on a leading axis: the losses of each copy's tasks, and its optimiser.

What one target's copy gives is what it gives alone, to rounding: copies share kernels of the
device, no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.optimizers import ADAM_BETAS, ADAM_EPS, clipped, moments
from metaforge.recipe.schema import Optimizer as Settings
from metaforge.tasks import TaskBatch


def losses(inner: InnerAlgorithm, params: Params, tasks: TaskBatch, noise: Tree = None) -> Tensor:
    """[T, n]: training losses of n tasks under each of T copies of theta.

    params ``{name: [T, *shape]}``; tasks are T n of them, copy by copy; the tensors of noise
    are [T, n, ...]. For algorithms that are ``vmappable``.
    """
    given = () if noise is None else (noise,)

    def one(theta: Params, own: dict[str, Tensor], *noise: Tree) -> Tensor:
        batch = TaskBatch(**own, outputs=tasks.outputs)
        return inner.losses(theta, batch, training=True, noise=noise[0] if noise else None)

    return vmap(one)(params, _apart(tasks, _copies(params)), *given)


def predictions(inner: InnerAlgorithm, params: Params, targets: TaskBatch) -> Tensor:
    """[T, Q, o]: what each copy of theta, adapted to its target's support, makes of its queries."""
    assert targets.query_x is not None

    def one(theta: Params, support: dict[str, Tensor], query_x: Tensor) -> Tensor:
        batch = TaskBatch(**support, outputs=targets.outputs)
        return inner.predict(theta, batch, query_x[None])[0]

    support = _apart(targets.without_query(), len(targets))
    return vmap(one)(params, support, targets.query_x)


def penalties(inner: InnerAlgorithm, params: Params) -> Tensor | None:
    """[T]: each copy's regularisers; None for an algorithm without."""
    none = inner.penalty({name: value[0] for name, value in params.items()}) is None
    return None if none else vmap(inner.penalty)(params)


def stack(trees: Sequence[Tree]) -> Tree:
    """The copies' noise as one: every tensor in it with a leading axis T."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(list(trees))
    if isinstance(first, dict):
        return {name: stack([tree[name] for tree in trees]) for name in first}
    return first if first is None else tuple(map(stack, zip(*trees, strict=True)))


class StackedOptimizer:
    """The rule of ``OuterOptimizer`` on T copies at once.

    Each copy has its own moments and count of steps, is clipped by its own norms, and stays as
    it was (count and moments too) in a step that it skips. ``params`` and ``extra`` are
    leaves ``{name: [T, *shape]}``, all copies of what is given.
    """

    def __init__(
        self,
        n_copies: int,
        params: Params,
        settings: Settings,
        extra: Params | None = None,
        extra_lr: float = 0.0,
    ):
        self.settings = settings
        self.params, self.extra = (_leaves(p, n_copies) for p in (params, extra or {}))
        self._rates = [settings.lr] * len(params) + [extra_lr] * len(self.extra)
        self._leaves = [*self.params.values(), *self.extra.values()]
        names = moments(settings)
        self._moments = [
            {name: torch.zeros_like(leaf, requires_grad=False) for name in names}
            for leaf in self._leaves
        ]
        self._rule = self._adam if settings.use == "adam" else self._sgd
        #: Steps that each copy took, and those that theta's moments had seen before.
        self.steps = torch.zeros(n_copies, dtype=torch.int64, device=self._leaves[0].device)
        self._carried = 0

    def carry_on(self, flat: dict[str, Tensor]) -> None:
        """Go on with theta's moments and count of steps of an ``OuterOptimizer.state``."""
        for index, held in enumerate(self._moments[: len(self.params)]):
            for key, value in held.items():
                if (name := f"rule/{index}/{key}") in flat:
                    value.copy_(flat[name])
        self._carried = int(flat.get("steps", 0))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], kept: Tensor) -> None:
        """One update of the copies that ``kept`` [T] marks; gradients in the order of ``params``,
        then ``extra``. Those of other copies may hold anything."""
        self.steps += kept
        n_theta, marks = len(self.params), kept.double()
        safe = [torch.where(_along(kept, g), g, 0.0) for g in gradients]
        theta = vmap(lambda *own: tuple(clipped(own, self.settings)))(*safe[:n_theta])
        for index, gradient in enumerate((*theta, *safe[n_theta:])):
            seen = self.steps + (self._carried if index < n_theta else 0)
            self._rule(index, gradient, marks, seen.clamp(min=1).double())

    def _sgd(self, index: int, gradient: Tensor, marks: Tensor, seen: Tensor) -> None:
        leaf, held, momentum = self._leaves[index], self._moments[index], self.settings.momentum
        if held:
            keep = _along(1 - (1 - momentum) * marks, leaf)
            gradient = held["momentum_buffer"].mul_(keep).add_(gradient)
        leaf.sub_(_along(self._rates[index] * marks, leaf) * gradient)

    def _adam(self, index: int, gradient: Tensor, marks: Tensor, seen: Tensor) -> None:
        leaf, held = self._leaves[index], self._moments[index]
        first, second = (_along((1 - beta) * marks, leaf) for beta in ADAM_BETAS)
        m = held["exp_avg"].lerp_(gradient, first)
        v = held["exp_avg_sq"].lerp_(gradient.square(), second)
        grown, root = 1 - ADAM_BETAS[0] ** seen, (1 - ADAM_BETAS[1] ** seen).sqrt()
        # p -= lr m / grown / (sqrt(v) / root + eps); tf1 divides eps by root too
        eps = ADAM_EPS if self.settings.eps_convention == "tf1" else ADAM_EPS * root
        size = self._rates[index] * marks * root / grown
        eps = _along(eps, leaf) if isinstance(eps, Tensor) else eps
        leaf.sub_(_along(size, leaf) * m / (v.sqrt() + eps))


def _copies(params: Params) -> int:
    return len(next(iter(params.values())))


def _apart(tasks: TaskBatch, n_copies: int) -> dict[str, Tensor]:
    """The tensors of T n tasks as [T, n, ...]."""
    every: dict[str, Any] = {f.name: getattr(tasks, f.name) for f in fields(tasks)}
    return {
        name: value.unflatten(0, (n_copies, -1))
        for name, value in every.items()
        if isinstance(value, Tensor)
    }


def _along(values: Tensor, like: Tensor) -> Tensor:
    """One number a copy, [T], against a tensor [T, *shape], in its precision."""
    values = values if values.dtype == torch.bool else values.to(like.dtype)
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _leaves(params: Params, n_copies: int) -> Params:
    return {
        name: value.detach().expand(n_copies, *value.shape).clone().requires_grad_()
        for name, value in params.items()
    }
