"""The law of ``vmappable`` inner algorithms: copies of theta at once give what one at a time does.

In float64. PyTorch's vmap differentiates some operators wrongly to second order without a
warning (batch normalisation), so gradients are compared, not values alone.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from metaforge import seeding, stacked
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.tasks import TaskBatch

#: Of equalities in float64, relative to the largest entry.
_TOLERANCE = 1e-9


def check_stacking(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Losses of the tasks in training and their gradient in theta, predictions and penalty: for
    two copies of theta at once as for each alone. On inputs of length 1 at most: an algorithm that
    samples may leave the numbers' range on the longer ones of toy tasks."""
    tasks = _short(tasks)
    random = seeding.generator(0, "copies")
    copies = {name: _moved(value, random) for name, value in params.items()}
    n_copies, n_tasks = 2, len(tasks)
    noises = [
        algorithm.draw_noise(seeding.generator(0, "noise", t), n_tasks) for t in range(n_copies)
    ]
    twice = tasks[[*range(n_tasks), *reversed(range(n_tasks))]]
    try:
        found = stacked.losses(algorithm, copies, twice, stacked.stack(noises))
    except RuntimeError as error:
        raise AssertionError(f"stacking: vmappable, but vmap cannot run it: {error}") from error
    expected = torch.stack(
        [
            algorithm.losses(
                _copy(copies, t),
                twice[t * n_tasks : (t + 1) * n_tasks],
                training=True,
                noise=noises[t],
            )
            for t in range(n_copies)
        ]
    )
    _close(found, expected, "a copy's losses are those it has alone")
    _same_gradients(copies, found, expected)
    _same_predictions(algorithm, copies, tasks)
    penalty = stacked.penalties(algorithm, copies)
    if penalty is not None:
        each = [algorithm.penalty(_copy(copies, t)) for t in range(n_copies)]
        alone = torch.stack([value for value in each if value is not None])
        _close(penalty, alone, "a copy's penalty is that it has alone")


def _same_gradients(copies: Params, found: Tensor, expected: Tensor) -> None:
    weights = torch.linspace(0.5, 1.5, found.numel(), dtype=found.dtype).view_as(found)
    leaves = list(copies.values())
    pairs = zip(
        copies,
        torch.autograd.grad((weights * found).sum(), leaves),
        torch.autograd.grad((weights * expected).sum(), leaves),
        strict=True,
    )
    for name, together, alone in pairs:
        _close(together, alone, f"a copy's gradient in {name} is that it has alone")


@torch.no_grad()
def _same_predictions(algorithm: InnerAlgorithm, copies: Params, tasks: TaskBatch) -> None:
    targets = tasks[:2]
    found = stacked.predictions(algorithm, copies, targets)
    for t in range(2):
        own = targets[t : t + 1]
        assert own.query_x is not None
        alone = algorithm.predict(_copy(copies, t), own.without_query(), own.query_x)
        _close(found[t : t + 1], alone, "a copy's predictions are those it has alone")


def _short(tasks: TaskBatch) -> TaskBatch:
    assert tasks.query_x is not None
    longest = max(x.flatten(2).norm(dim=2).max() for x in (tasks.support_x, tasks.query_x))
    scale = 1 / longest.clamp(min=1)
    return replace(tasks, support_x=scale * tasks.support_x, query_x=scale * tasks.query_x)


def _moved(value: Tensor, random: torch.Generator) -> Tensor:
    """[2, *shape]: two copies of a parameter, unlike each other."""
    noise = torch.randn(2, *value.shape, generator=random, dtype=value.dtype)
    return (value.detach() * (1 + 0.1 * noise)).requires_grad_()


def _copy(copies: Params, t: int) -> Params:
    return {name: value[t] for name, value in copies.items()}


def _close(found: Tensor, expected: Tensor, law: str) -> None:
    assert found.shape == expected.shape, (
        f"stacking: {law}; shape {list(found.shape)}, not {list(expected.shape)}"
    )
    assert expected.isfinite().all(), f"stacking: {law}; alone it is not finite"
    scale = float(expected.detach().abs().max()) or 1.0
    worst = float((found - expected).detach().abs().max()) / scale
    assert worst <= _TOLERANCE, f"stacking: {law}; off by {worst:.2g} of the largest"
