"""MAML of affine layers with relu between them, all tasks at once, by explicit gradients.

In the layout of ``nn.Linear``'s weights, with samples as columns, an inner step is

    U_l = W_l H_{l-1} + b_l,   H_l = relu(U_l),   H_0 = X^T
    R_L = eta (Y - softmax(U_L)),   or for regression   R_L = eta (2/d) (Y - U_L)
    R_{l-1} = W_l^T R_l [H_{l-1} > 0]
    W_l <- W_l + R_l H_{l-1}^T,   b_l <- b_l + R_l 1

where R_l is -lr times the gradient of the mean support loss in U_l, and eta is lr over the
number of support rows (0 for padding). The inner gradient is an ordinary expression, so the
outer gradient is one backward pass, with no second differentiation of a graph.

**Gram form.** The first layer's updates are combinations of the S support rows,
W_1 = W_1(0) + A X with A [h, S], so that on the support U_1 = U_1(0) + A (X X^T + 1) and
A <- A + R_1: the wide input is met once a task, not twice a step. With more support rows
than inputs the first layer is kept like the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch
from metaforge_maml.backend import Backend, InnerLoop


def affine_names(module: nn.Module) -> list[tuple[str, str | None]] | None:
    """(weight, bias) names of a chain ``[Flatten] Linear (ReLU Linear)*``, else None.

    Only exact types count, without hooks, shared or frozen parameters: anything else may
    compute something else.
    """
    named = [("", module)] if type(module) is nn.Linear else list(module.named_children())
    if type(module) not in (nn.Linear, nn.Sequential) or not _plain(
        [module, *dict(named).values()]
    ):
        return None
    if named and type(named[0][1]) is nn.Flatten and named[0][1].start_dim == 1:
        named = named[1:]
    kinds = [type(layer) for _, layer in named]
    if kinds != [nn.Linear, *[nn.ReLU, nn.Linear] * (len(kinds) // 2)]:
        return None
    layers = [(f"{name}." if name else "", layer) for name, layer in named[::2]]
    parameters = [parameter for _, layer in layers for parameter in layer.parameters()]
    if len(set(map(id, parameters))) < len(parameters):
        return None
    if not all(parameter.requires_grad for parameter in parameters):
        return None
    return [(f"{at}weight", None if x.bias is None else f"{at}bias") for at, x in layers]


def _plain(modules: list[nn.Module]) -> bool:
    return not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


class DenseBackend(Backend):
    """The formulas above; for modules that ``affine_names`` knows."""

    vmappable = True

    def __init__(self, module: nn.Module, loop: InnerLoop, support_rows: int):
        super().__init__(module, loop)
        names = affine_names(module)
        assert names is not None
        self.names = names
        width = module.get_parameter(names[0][0]).shape[1]
        self.implementation = "gram" if support_rows <= width else "closed-form"

    def adapt(self, params: Params, support: TaskBatch) -> Params:
        adapted: Params = {}
        layers = self._adapted(params, support)
        for (weight_name, bias_name), layer in zip(self.names, layers, strict=True):
            weight, bias = layer.adapted()
            adapted[weight_name] = weight
            if bias_name is not None and bias is not None:
                adapted[bias_name] = bias.squeeze(-1)
        # without a step the layers still hold theta, which all tasks share
        n_tasks = len(support)
        return {k: v.expand(n_tasks, *params[k].shape).clone() for k, v in adapted.items()}

    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        layers = self._adapted(params, support)
        h = layers[0].query(query_x.flatten(2).mT)
        for layer in layers[1:]:
            h = layer.query(torch.relu(h))
        return h.mT

    def _adapted(self, params: Params, support: TaskBatch) -> list[_Layer]:
        theta = [(params[w], None if b is None else params[b]) for w, b in self.names]
        x = support.support_x.flatten(2)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.loop.second_order):
            layers = [_Layer(*values) for values in theta]
            if x.shape[1] <= x.shape[2]:
                layers[0] = _SpanLayer(*theta[0], x)
            _descend(layers, x.mT, _Residual(support, self.loop.lr), self.loop.steps)
        if not self.loop.second_order:
            for layer, values in zip(layers, theta, strict=True):
                layer.attach(*values)
        return layers


def _descend(layers: list[_Layer], x: Tensor, residual: _Residual, steps: int) -> None:
    """The inner loop on support inputs x [B, D, S]."""
    for _ in range(steps):
        inputs = [x]
        u = layers[0].support(x)
        for layer in layers[1:]:
            inputs.append(torch.relu(u))
            u = layer.support(inputs[-1])
        r = residual(u)
        for layer, h in zip(layers[:0:-1], inputs[:0:-1], strict=True):
            below = layer.pull_back(r) * (h > 0)
            layer.descend(r, h)
            r = below
        layers[0].descend(r, x)


class _Residual:
    """-lr times the gradient of the mean support loss in the outputs [B, o, S]."""

    def __init__(self, support: TaskBatch, lr: float):
        y, mask = support.support_y, support.support_mask
        self.regression = support.is_regression
        self.eta = (lr * mask / mask.sum(1, keepdim=True))[:, None]
        if self.regression:
            self.y = y.mT
            self.eta = self.eta * (2 / y.shape[-1])
        else:
            classes = torch.arange(support.outputs, device=y.device)
            self.y = (y[:, None] == classes[:, None]).to(mask.dtype)

    def __call__(self, u: Tensor) -> Tensor:
        return self.eta * (self.y - (u if self.regression else torch.softmax(u, 1)))


class _Layer:
    """An affine layer: weight [o, i] and bias [o, 1] of theta, from the first step on with a
    leading axis of tasks."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight = weight
        self.bias = None if bias is None else bias[:, None]

    def support(self, h: Tensor) -> Tensor:
        """[B, i, S] -> [B, o, S] as the weights stand."""
        return _affine(self.weight, self.bias, h)

    query = support

    def pull_back(self, r: Tensor) -> Tensor:
        """W^T R: [B, o, S] -> [B, i, S]."""
        return self.weight.mT @ r

    def descend(self, r: Tensor, h: Tensor) -> None:
        self.weight = torch.baddbmm(self.weight, r, h.mT)
        if self.bias is not None:
            self.bias = self.bias + r.sum(-1, keepdim=True)

    def attach(self, weight: Tensor, bias: Tensor | None) -> None:
        """Put theta back into a graph that the inner loop left: the update becomes a constant."""
        self.weight = self.weight.detach() + (weight - weight.detach())
        if self.bias is not None and bias is not None:
            self.bias = self.bias.detach() + (bias - bias.detach())[:, None]

    def adapted(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias


class _SpanLayer(_Layer):
    """A first layer whose updates are kept as coefficients A [B, o, S] of the support rows."""

    coefficients: Tensor | None = None

    def __init__(self, weight: Tensor, bias: Tensor | None, x: Tensor):
        super().__init__(weight, bias)
        self.x = x
        self.start = _affine(self.weight, self.bias, x.mT)
        self.gram = self._products(x)

    def _products(self, rows: Tensor) -> Tensor:
        """[B, S, n]: inner products of the support with rows [B, n, D], + 1 for a bias."""
        if self.bias is None:
            return torch.bmm(self.x, rows.mT)
        return torch.baddbmm(rows.new_ones(()), self.x, rows.mT)

    def support(self, h: Tensor) -> Tensor:
        if self.coefficients is None:
            return self.start
        return torch.baddbmm(self.start, self.coefficients, self.gram)

    def descend(self, r: Tensor, h: Tensor) -> None:
        self.coefficients = r if self.coefficients is None else self.coefficients + r

    def attach(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)  # the coefficients are the update, constants already

    def query(self, h: Tensor) -> Tensor:
        """Through the cross Gram matrix, or through each task's own weight where it has so few
        outputs that this is less work (2 o S D against S Q D multiplications)."""
        if self.coefficients is None or 2 * len(self.weight) <= h.shape[-1]:
            return _affine(*self.adapted(), h)
        start = _affine(self.weight, self.bias, h)
        return torch.baddbmm(start, self.coefficients, self._products(h.mT))

    def adapted(self) -> tuple[Tensor, Tensor | None]:
        a = self.coefficients
        if a is None:
            return self.weight, self.bias
        bias = None if self.bias is None else self.bias + a.sum(-1, keepdim=True)
        return torch.baddbmm(self.weight, a, self.x), bias


def _affine(weight: Tensor, bias: Tensor | None, h: Tensor) -> Tensor:
    """W H + b for H [B, i, n]: one product where the tasks share W [o, i], else one a task."""
    if weight.ndim == 2:
        return F.linear(h.mT, weight, None if bias is None else bias.squeeze(-1)).mT
    return torch.bmm(weight, h) if bias is None else torch.baddbmm(bias, weight, h)
