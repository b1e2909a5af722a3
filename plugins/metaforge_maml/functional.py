"""MAML of any module through ``torch.func.functional_call``: task by task, or by vmap."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from metaforge import losses
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.taskwise import Rows, plain_attention, task_losses
from metaforge_maml.backend import Backend, InnerLoop, TaskwiseBackend


class LoopBackend(TaskwiseBackend):
    """Task by task. Any module; equal to learn2learn's loop in cost and memory."""

    implementation = "loop"

    @plain_attention
    def adapt(self, params: Params, support: TaskBatch) -> Params:
        tasks = [self._adapt_one(params, rows) for rows in self.support_rows(support)]
        return {name: torch.stack([task[name] for task in tasks]) for name in params}

    @plain_attention
    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        pairs = zip(self.support_rows(support), query_x, strict=True)
        return torch.stack([self.call(self._adapt_one(params, rows), x) for rows, x in pairs])

    @plain_attention
    def losses(self, params: Params, tasks: TaskBatch) -> Tensor:
        def loss(theta: Params, support: Rows, query: Rows) -> Tensor:
            return self.mean_loss(self._adapt_one(theta, support), query)

        return task_losses(loss, params, tasks, self.transductive)

    def step(self, params: Params, support: Rows) -> Params:
        """One inner step of one task."""
        second = self.loop.second_order and torch.is_grad_enabled()
        leaves = {
            name: value if second and value.requires_grad else value.detach().requires_grad_()
            for name, value in params.items()
        }
        stepped = dict(params)
        for rows in support.chunks(self.loop.support_chunk):
            with torch.enable_grad():
                share = self.mean_loss(leaves, rows)
                found = torch.autograd.grad(share, list(leaves.values()), create_graph=second)
            for name, gradient in zip(leaves, found, strict=True):
                stepped[name] = torch.sub(stepped[name], gradient, alpha=self.loop.lr)
        return stepped

    def mean_loss(self, params: Params, rows: Rows) -> Tensor:
        """These rows' share of the mean loss (a scalar)."""
        return rows.loss(self.call(params, rows.x))

    def _adapt_one(self, params: Params, support: Rows) -> Params:
        for _ in range(self.loop.steps):
            params = self.step(params, support)
        return params


class VmapBackend(Backend):
    """All tasks at once by ``torch.func.vmap``, which makes grouped convolutions of
    convolutions; only for modules that ``agrees_with_loop``."""

    implementation = "vmap"
    vmappable = True

    def adapt(self, params: Params, support: TaskBatch) -> Params:
        return vmap(self._adapt_one, (None, 0, 0, 0))(params, *_support(support))

    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        def one(params: Params, x: Tensor, y: Tensor, mask: Tensor, query: Tensor) -> Tensor:
            adapted = self._adapt_one(params, x, y, mask)
            return self.call(adapted, query)

        return vmap(one, (None, 0, 0, 0, 0))(params, *_support(support), query_x)

    def _adapt_one(self, params: Params, x: Tensor, y: Tensor, mask: Tensor) -> Params:
        for _ in range(self.loop.steps):
            second = self.loop.second_order
            at = params if second else {name: value.detach() for name, value in params.items()}
            gradients = grad(self._support_loss)(at, x, y, mask)
            params = {name: params[name] - self.loop.lr * gradients[name] for name in params}
        return params

    def _support_loss(self, params: Params, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        outputs = self.call(params, x)
        return losses.task_losses(outputs[None], y[None], mask[None])[0]


def _support(tasks: TaskBatch) -> tuple[Tensor, Tensor, Tensor]:
    return tasks.support_x, tasks.support_y, tasks.support_mask


@torch.enable_grad()
def agrees_with_loop(
    module: nn.Module, vmapped: nn.Module, shape: TaskShape, second_order: bool
) -> bool:
    """Whether vmap can run ``vmapped``, the module or one of the same parameters that is to
    compute the same, and gives the loop's meta-gradient of the module, in float64.

    It must be tried: PyTorch's vmap differentiates batch, layer and instance normalisation
    wrongly to second order (up to 1 % off, with no warning), and refuses some operators.
    """
    random = torch.Generator().manual_seed(0)
    device = next(module.parameters()).device
    if device.type != "cuda":  # others may lack float64
        device = torch.device("cpu")

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=random, dtype=torch.float64).to(device)

    def labels(n: int) -> Tensor:
        if shape.kind == "regression":
            return draw(2, n, shape.outputs)
        return torch.randint(shape.outputs, (2, n), generator=random).to(device)

    x = [draw(2, 6, *shape.input_shape) for _ in range(2)]
    tasks = TaskBatch(x[0], labels(6), x[1], labels(6), outputs=shape.outputs)
    module, vmapped = (copy.deepcopy(one).to(device, torch.float64) for one in (module, vmapped))
    # moved off its initial values, where a zero could hide a wrong term
    params = {
        name: (value.detach() + 0.1 * draw(*value.shape)).requires_grad_()
        for name, value in module.named_parameters()
        if value.requires_grad
    }
    loop = InnerLoop(steps=2, lr=0.5, second_order=second_order)

    def meta_gradient(backend: Backend) -> tuple[Tensor, ...]:
        return torch.autograd.grad(backend.losses(params, tasks).sum(), list(params.values()))

    try:
        expected = meta_gradient(LoopBackend(module, loop))
        found = meta_gradient(VmapBackend(vmapped, loop))
    except Exception:  # refusals of vmap, or of float64, have no type of their own
        return False
    scale = max(value.abs().max() for value in expected)
    pairs = zip(found, expected, strict=True)
    return all(((a - b).abs().max() <= 1e-9 * scale).item() for a, b in pairs)
