"""A meta-gradient step of ``ls`` and ``r2d2`` against five matrix products and a plain loop.

The five are the products of the feature map alone, on all support and query rows of the
meta-batch: two forward, three backward (none for the gradient in the inputs). That is the
floor for whatever forms the features of every row; ``ls`` forms the support's alone and takes
the queries through the second layer by their task's head, which is why it can beat it. The
loop is what one writes without a library: task by task, autograd through ``torch.linalg.solve``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import Row, compare, context, here
from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_ls.closed_form import ClosedForm
from metaforge_ls.ls import Ls
from metaforge_ls.options import LsOptions, R2d2Options
from metaforge_ls.r2d2 import R2d2

WIDTH, WAYS, QUERIES, BATCH = 640, 5, 15, 12
FLOOR = "floor: five matrix products"


def rows() -> Iterator[Row]:
    return (row(shots) for shots in (5, 1))


def row(shots: int, rounds: int = 31) -> Row:
    shape = TaskShape("classification", (WIDTH,), WAYS, shots, QUERIES)
    tasks = here(_tasks(shape))
    ls, r2d2 = Ls(LsOptions(), context()), R2d2(R2d2Options(), context())
    theta = _theta(ls, shape)
    ours = _step(ls, theta, tasks)

    def loop() -> list[Tensor]:
        return _gradient(_loop(theta, tasks), theta)

    for found, expected in zip(ours(), loop(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    return compare(
        f"least-squares head, {WIDTH}-{WIDTH}, {shots}-shot",
        {
            FLOOR: _floor(theta, tasks),
            "plain loop over tasks": loop,
            "metaforge ls": ours,
            "metaforge r2d2": _step(r2d2, _theta(r2d2, shape), tasks),
        },
        peer=FLOOR,
        # no slower than the floor: 0.95 leaves room for timing noise
        target={"metaforge ls": 0.95, "metaforge r2d2": 0.95},
        note=f"meta-batch {BATCH}, {WAYS}-way {QUERIES}-query",
        rounds=rounds,
        least_seconds=0.1,
    )


def _theta(algorithm: ClosedForm, shape: TaskShape) -> Params:
    fresh = algorithm.init(shape, torch.Generator().manual_seed(0))
    return {name: value.requires_grad_() for name, value in fresh.items()}


def _tasks(shape: TaskShape) -> TaskBatch:
    random = torch.Generator().manual_seed(0)

    def draw(each: int) -> tuple[Tensor, Tensor]:
        n = each * shape.outputs
        x = F.normalize(torch.rand(BATCH, n, *shape.input_shape, generator=random), dim=-1)
        return x, (torch.arange(n) % shape.outputs).expand(BATCH, n).contiguous()

    return TaskBatch(*draw(shape.shots), *draw(shape.queries), outputs=shape.outputs)


def _step(algorithm: ClosedForm, theta: Params, tasks: TaskBatch) -> Callable[[], list[Tensor]]:
    return lambda: _gradient(algorithm.losses(theta, tasks, training=True).mean(), theta)


def _floor(theta: Params, tasks: TaskBatch) -> Callable[[], None]:
    assert tasks.query_x is not None
    return five_products(theta, torch.cat([tasks.support_x, tasks.query_x], 1).flatten(0, 1))


def five_products(theta: Params, x: Tensor) -> Callable[[], None]:
    """The products of the map on rows x [n, p]: two forward, three backward."""
    w0, w1 = (theta[name].detach() for name in ("w0", "w1"))
    above = here(torch.randn(len(x), w1.shape[1], generator=torch.Generator().manual_seed(1)))

    def products() -> None:
        hidden = x @ w0
        hidden @ w1
        hidden.T @ above
        x.T @ (above @ w1.T)

    return products


def _loop(theta: Params, tasks: TaskBatch, ridge: float = 0.1) -> Tensor:
    assert tasks.query_x is not None
    assert tasks.query_y is not None

    def features(x: Tensor) -> Tensor:
        x = F.normalize(x, dim=-1)
        return x + torch.relu(x @ theta["w0"]) @ theta["w1"]

    total = here(torch.zeros(()))
    each = zip(tasks.support_x, tasks.support_y, tasks.query_x, tasks.query_y, strict=True)
    for x, y, query_x, query_y in each:
        support, query = features(x), features(query_x)
        gram = support @ support.T + ridge * here(torch.eye(len(support)))
        weight = support.T @ torch.linalg.solve(gram, F.one_hot(y, WAYS).float())
        total = total + (query @ weight - F.one_hot(query_y, WAYS)).square().mean()
    return total / len(tasks)


def _gradient(value: Tensor, theta: Params) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(theta.values())))
