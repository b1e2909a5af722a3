"""Whether a training step would stall an accelerator, or leave it: tried without one.

On the device ``meta`` tensors have shapes and no numbers, so that ``.item()``, ``bool(tensor)``,
indexing by a mask and the like have nothing to read, and most operators refuse a tensor of the
CPU beside one of theirs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from metaforge import seeding, stacked
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.recipe.schema import Optimizer
from metaforge.stacked import StackedOptimizer
from metaforge.tasks import TaskBatch

_META = torch.device("meta")
#: What PyTorch says where a tensor without numbers is read, and where devices are mixed.
_READS = ("meta tensor", "Meta tensors", "torch.nonzero", "no fake impl")
_MIXES = ("not on the expected device", "on the same device")


def check_device(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """A step on the tasks (losses in training, penalty, gradient) reads nothing back and makes
    its tensors where theta is; so does one of two copies of theta at once, their optimiser
    included, where the algorithm is ``vmappable``.

    Raises ``AssertionError`` with PyTorch's words, which name the operator.
    """
    noise = _there(algorithm.draw_noise(seeding.generator(0, "noise"), len(tasks)))
    theta, tasks = _there(dict(params)), tasks.to(_META)
    try:
        _step(algorithm, theta, tasks, noise)
        if algorithm.vmappable:
            _stacked_step(algorithm, StackedOptimizer(2, theta, Optimizer()), tasks, noise)
    except (RuntimeError, NotImplementedError) as error:
        if any(words in str(error) for words in _READS):
            raise AssertionError(f"device: a step reads from the device: {error}") from error
        if any(words in str(error) for words in _MIXES):
            raise AssertionError(f"device: a step mixes devices: {error}") from error
        raise


def _step(algorithm: InnerAlgorithm, theta: Params, tasks: TaskBatch, noise: Any) -> None:
    params = {name: value.requires_grad_() for name, value in theta.items()}
    value = algorithm.losses(params, tasks, training=True, noise=noise).mean()
    penalty = algorithm.penalty(params)
    _gradients(value if penalty is None else value + penalty, params)


def _stacked_step(
    algorithm: InnerAlgorithm, optimizer: StackedOptimizer, tasks: TaskBatch, noise: Any
) -> None:
    params, twice = optimizer.params, [*range(len(tasks))] * 2
    value = stacked.losses(algorithm, params, tasks[twice], stacked.stack([noise, noise])).mean(1)
    penalties = stacked.penalties(algorithm, params)
    value = value if penalties is None else value + penalties
    optimizer.step(_gradients(value.sum(), params), value.isfinite())


def _gradients(value: Tensor, params: Params) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(params.values())))


def _there(tree: Any) -> Any:
    return tree_map_only(Tensor, lambda value: value.detach().to(_META), tree)
