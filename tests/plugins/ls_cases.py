"""What the tests of ls and r2d2 share: small float64 algorithms, and the plain formulas."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.components import Context
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters
from metaforge_ls.closed_form import ClosedForm
from metaforge_ls.ls import Ls
from metaforge_ls.options import LsOptions, R2d2Options
from metaforge_ls.r2d2 import R2d2

CONTEXT = Context(dtype="float64")
#: 3-way 2-shot: 9 features, more than the 6 support rows; 4, fewer; images; and regression.
WIDE = TaskShape("classification", (9,), 3, shots=2, queries=3)
NARROW = TaskShape("classification", (4,), 3, shots=2, queries=3)
IMAGES = TaskShape("classification", (1, 3, 4), 3, shots=2, queries=3)
REAL = TaskShape("regression", (9,), 2, shots=5, queries=6)


def ls(kind: type[Ls] = Ls, context: Context = CONTEXT, **options: Any) -> Ls:
    return kind(LsOptions(**{"hidden": 7, **options}), context)


def r2d2(kind: type[R2d2] = R2d2, context: Context = CONTEXT, **options: Any) -> R2d2:
    return kind(R2d2Options(**{"hidden": 7, **options}), context)


MAKERS = {"ls": ls, "r2d2": r2d2}


def started(algorithm: ClosedForm, shape: TaskShape) -> tuple[ClosedForm, Params]:
    """An initialised algorithm and its parameters, ready for gradients, none of them zero."""
    params = fresh_parameters(algorithm, shape)
    if "bias" in params:
        params["bias"] = torch.full_like(params["bias"], 0.3).requires_grad_()
    return algorithm, params


def plain_losses(algorithm: ClosedForm, params: Params, tasks: TaskBatch) -> Tensor:
    """[B]: the losses task by task, padding cut away, weights from the primal normal equations

    W = (X^T X + ridge I)^-1 X^T Y
    """
    assert tasks.query_x is not None
    assert tasks.query_y is not None
    learned = isinstance(algorithm, R2d2)
    ridge = params["log_ridge"].exp() if learned else algorithm.options.ridge

    def features(x: Tensor) -> Tensor:
        x = x.flatten(1)
        if not tasks.is_regression and algorithm.options.normalize:
            x = x / x.norm(dim=1, keepdim=True)
        return x + (x @ params["w0"]).clamp(min=0) @ params["w1"]

    def wanted(y: Tensor) -> Tensor:
        return y if tasks.is_regression else F.one_hot(y, tasks.outputs).to(params["w0"])

    found = []
    for b in range(len(tasks)):
        rows, asked = tasks.support_mask[b] > 0, tasks.query_mask[b] > 0
        x, y = features(tasks.support_x[b, rows]), wanted(tasks.support_y[b, rows])
        weight = torch.linalg.inv(x.T @ x + ridge * torch.eye(x.shape[1]).to(x)) @ x.T @ y
        outputs = features(tasks.query_x[b, asked]) @ weight
        answers = tasks.query_y[b, asked]
        if learned:
            outputs = params["log_scale"].exp() * outputs + params["bias"]
        if learned and not tasks.is_regression:
            found.append(-outputs.log_softmax(1)[torch.arange(len(answers)), answers].mean())
        else:
            found.append(((outputs - wanted(answers)) ** 2).mean())
    return torch.stack(found)


def gradients(value: Tensor, params: Params) -> Params:
    found = torch.autograd.grad(value, list(params.values()))
    return dict(zip(params, found, strict=True))
