"""How many targets are conditioned at once.

On a CPU the default is 1: the products of wide features fill it with one target, and results keep
their bits; where tasks are so small that calls cost more than arithmetic, a number can pay. On
CUDA it is as many as fit, by an estimate of what one target takes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from metaforge import memory
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskSource
from metaforge.together import task_bytes

#: Targets at most, unless a recipe names a number: beyond it a device gains little.
_MOST = 64
#: Of the free memory, what targets may take; the rest is for what the estimate does not see.
_SHARE = 0.5
#: Copies of theta that a target has: value, gradient, clipped gradient, two moments, an update.
_THETAS = 6


def obstacle(inner: InnerAlgorithm, device: str) -> str | None:
    """Why targets are taken one by one here, if so. ``inner`` is initialised."""
    if inner.transductive:
        return "a transductive algorithm sees the padding of a batch"
    if not inner.vmappable:
        return "the inner algorithm does not serve stacked copies of theta (vmappable)"
    if torch.device(device).type not in ("cpu", "cuda"):
        return f"targets are stacked on a CPU or on CUDA, not on {device}"
    return None


def count(
    recipe: Recipe,
    source: TaskSource,
    inner: InnerAlgorithm,
    theta: Params,
    device: str,
    ranks: int = 1,
) -> int:
    """How many targets are conditioned at once: what ``evaluate.batch`` says, or as many as fit,
    yet not more than leave each of several ranks its share."""
    if obstacle(inner, device):
        return 1
    if recipe.evaluate.batch is not None:
        return recipe.evaluate.batch
    if torch.device(device).type != "cuda":
        return 1
    fit = fitting(memory.available(torch.device(device)), estimate(recipe, source, inner, theta))
    return min(fit, share(recipe, ranks))


def share(recipe: Recipe, ranks: int) -> int:
    """A rank's share of the targets, rounded up."""
    return -(-recipe.evaluate.targets * recipe.evaluate.runs // ranks)


def fitting(free: int | None, each: int) -> int:
    """The targets that fit into ``free`` bytes (None where it is not known) at ``each`` bytes."""
    return 1 if free is None else max(1, min(_MOST, int(_SHARE * free) // each))


def estimate(recipe: Recipe, source: TaskSource, inner: InnerAlgorithm, theta: Params) -> int:
    """Bytes that a target takes, from above: its copies of theta; its share of the tasks held;
    and twice all that a step's forward pass computes, for the graph and for going back."""
    n_tasks = recipe.condition.batch + 1
    tasks = source.batch("train", range(n_tasks))
    noise = inner.draw_noise(torch.Generator().manual_seed(0), n_tasks)
    made = _Made()
    leaves = {name: value.detach().requires_grad_() for name, value in theta.items()}
    with made, torch.enable_grad():
        inner.losses(leaves, tasks, training=True, noise=noise)
    held = 2 * n_tasks * task_bytes(source.shape, str(tasks.support_mask.dtype)[6:])
    return _THETAS * sum(value.nbytes for value in theta.values()) + held + 2 * made.bytes


def told(recipe: Recipe, inner: InnerAlgorithm, device: str, n_targets: int) -> str:
    """A run's header: targets at once, and why not more where more were asked for or usual."""
    usual = torch.device(device).type == "cuda" or (recipe.evaluate.batch or 1) > 1
    why = obstacle(inner, device) if usual else None
    return f"targets at once {n_targets}" + (f" ({why})" if why else "")


class _Made(TorchDispatchMode):
    """Counts the bytes of all tensors that operators return."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.bytes += sum(x.nbytes for x in tree_leaves(found) if isinstance(x, torch.Tensor))
        return found
