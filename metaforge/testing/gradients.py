"""The law of meta-gradients: what ``losses`` differentiates to is what finite differences give."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metaforge import seeding
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.tasks import TaskBatch

#: Of gradients against central finite differences.
GRADIENT_TOLERANCE = 1e-6
#: Their steps. Within the first a network with relu or pooling may have a kink, across which a
#: difference is no derivative; then the second tells. A gradient that is wrong is so for both.
_STEPS = (1e-6, 1e-7)

#: (theta, tasks) -> losses [B], with constant what an algorithm of order 1 holds constant
HeldLosses = Callable[[Params, TaskBatch], Tensor]


def check_meta_gradient(
    algorithm: InnerAlgorithm,
    params: Params,
    tasks: TaskBatch,
    *,
    unadapted: InnerAlgorithm | None = None,
    held_losses: HeldLosses | None = None,
    directions: int = 3,
) -> None:
    """The gradient of ``losses`` in theta matches central finite differences along random
    directions: of the losses themselves at order 2; at order 1 of the losses at theta plus
    the update, the update held constant (``unadapted`` evaluates those). Where the update is
    learned too, as Meta-SGD's rates are, and only its gradients are constant, ``held_losses``
    says what is differentiated at order 1."""
    if algorithm.order == 1 and held_losses is None:
        assert unadapted is not None, "order 1: the check needs the algorithm with 0 steps"
        with torch.no_grad():
            state = algorithm.adapt(params, tasks.without_query())
            updates = {name: state[name] - value for name, value in params.items()}

    def objective(theta: Params) -> Tensor:
        if algorithm.order == 2:
            return _weigh(algorithm.losses(theta, tasks))
        if held_losses is not None:
            return _weigh(held_losses(theta, tasks))
        assert unadapted is not None
        each = [
            unadapted.losses({k: v + updates[k][b] for k, v in theta.items()}, tasks[b : b + 1])
            for b in range(len(tasks))
        ]
        return _weigh(torch.cat(each))

    gradient = meta_gradient(algorithm, params, tasks)
    random = seeding.generator(0, "directions")
    for _ in range(directions):
        direction = {
            k: torch.randn(v.shape, generator=random, dtype=v.dtype) for k, v in params.items()
        }
        found = torch.stack([(gradient[k] * direction[k]).sum() for k in params]).sum()
        scale = torch.cat([value.flatten() for value in gradient.values()]).norm()
        for step in _STEPS:
            expected = _central_difference(objective, params, direction, step)
            near = (found - expected).abs() <= GRADIENT_TOLERANCE * max(scale, expected.abs())
            if near:
                break
        assert near, (
            f"meta-gradient at order {algorithm.order}: {found:.9g} along a direction where "
            f"finite differences give {expected:.9g}"
        )


def meta_gradient(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> Params:
    """The gradient in theta of the tasks' losses, weighted unequally."""
    value = _weigh(algorithm.losses(params, tasks))
    found = torch.autograd.grad(value, list(params.values()))
    return dict(zip(params, found, strict=True))


def _weigh(values: Tensor) -> Tensor:
    return values @ torch.linspace(0.5, 1.5, len(values), dtype=values.dtype)


@torch.no_grad()
def _central_difference(
    objective: Callable[[Params], Tensor], params: Params, direction: Params, step: float
) -> Tensor:
    def at(share: float) -> Tensor:
        return objective({k: v + share * direction[k] for k, v in params.items()})

    return (at(step) - at(-step)) / (2 * step)
