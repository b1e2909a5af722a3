"""MAML's step (losses of a meta-batch and their gradient in theta) against learn2learn's.

The peer is the loop of learn2learn's documentation: clone, adapt, loss, backward, task by
task. At order 2 the loop of higher's documentation stands beside it, where higher is there. The
functional loop is what one writes without a library. The floor is one forward and
backward pass of the model on every support and query row: no method can do with less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from benchmarks.harness import Row, compare, context, here
from metaforge.optional import HIGHER
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_learn2learn import peer
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions
from metaforge_models.conv import Conv4, ResNet12
from metaforge_models.options import Conv4Options, ResNet12Options

LR = 0.1
LEARN2LEARN = "learn2learn's loop"
OURS = "metaforge maml"


def rows() -> Iterator[Row]:
    vectors = TaskShape("classification", (640,), 5, shots=5, queries=15)
    images = TaskShape("classification", (1, 28, 28), 5, shots=5, queries=15)
    mlp = nn.Sequential(nn.Linear(640, 64), nn.ReLU(), nn.Linear(64, 5))
    conv4 = Conv4(Conv4Options(filters=32)).build(images, torch.Generator().manual_seed(0))
    yield linear()
    yield _row("linear head, first order", nn.Linear(640, 5), vectors, 12, 5, order=1)
    yield _row("MLP head, 640-64-5", mlp, vectors, 12, 5, promised=2.5)
    # the same arithmetic as learn2learn's: 0.95 leaves room for timing noise
    yield _row("conv4, 32 filters, 28x28", conv4, images, 4, 2, promised=0.95, rounds=5)
    one_shot = replace(images, shots=1)
    yield _row("conv4, five steps, 1-shot", conv4, one_shot, 8, 5, promised=0.95, rounds=3)
    colours = TaskShape("classification", (3, 32, 32), 5, shots=1, queries=15)
    resnet12 = ResNet12(ResNet12Options(widths=(8, 16, 32, 64)))
    module = resnet12.build(colours, torch.Generator().manual_seed(0))
    yield _row("resnet12, narrow, 3x32x32", module, colours, 2, 2, promised=0.95, rounds=9)


def linear(rounds: int = 15) -> Row:
    shape = TaskShape("classification", (640,), 5, shots=5, queries=15)
    head = nn.Linear(640, 5)
    return _row("linear head, 640 features", head, shape, 12, 5, promised=10.0, rounds=rounds)


def _row(
    name: str,
    module: nn.Module,
    shape: TaskShape,
    batch: int,
    steps: int,
    *,
    order: int = 2,
    promised: float | None = None,
    rounds: int = 15,
) -> Row:
    module, tasks = here(module), here(_tasks(shape, batch))
    options = MamlOptions.model_validate({"steps": steps, "lr": LR, "order": order})
    algorithm = Maml(options, context(), model=module)
    params = algorithm.init(shape, torch.Generator().manual_seed(0))
    theta = {key: value.requires_grad_() for key, value in params.items()}

    def ours() -> list[Tensor]:
        return _gradient(algorithm.losses(theta, tasks, training=True).mean(), theta)

    callables: dict[str, Callable[[], list[Tensor]]] = {
        LEARN2LEARN: _learn2learn(module, tasks, steps, order),
        "plain functional loop": _functional(module, theta, tasks, steps, order),
        OURS: ours,
        "floor: one pass over every row": _floor(module, theta, tasks),
    }
    if order == 2 and not HIGHER.missing:
        callables["higher's loop"] = _higher(module, tasks, steps)
    expected = callables[LEARN2LEARN]()
    for call in callables.keys() - {"floor: one pass over every row"}:
        for found, value in zip(callables[call](), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-5)
    implementation = algorithm.describe()["implementation"]
    return compare(
        name,
        callables,
        peer=LEARN2LEARN,
        target={} if promised is None else {OURS: promised},
        note=f"{implementation}; order {order}, {steps} steps, meta-batch {batch}, "
        f"{shape.outputs}-way {shape.shots}-shot {shape.queries}-query",
        rounds=rounds,
    )


def _tasks(shape: TaskShape, batch: int) -> TaskBatch:
    random = torch.Generator().manual_seed(0)

    def draw(each: int) -> tuple[Tensor, Tensor]:
        n = each * shape.outputs
        x = torch.randn(batch, n, *shape.input_shape, generator=random)
        return x, (torch.arange(n) % shape.outputs).expand(batch, n).contiguous()

    return TaskBatch(*draw(shape.shots), *draw(shape.queries), outputs=shape.outputs)


def _learn2learn(module: nn.Module, tasks: TaskBatch, steps: int, order: int) -> Any:
    maml = peer.load().algorithms.MAML(module, lr=LR, first_order=order == 1)
    loss = nn.CrossEntropyLoss()

    def step() -> list[Tensor]:
        maml.zero_grad()
        for x, y, query_x, query_y in _each(tasks):
            learner = maml.clone()
            for _ in range(steps):
                learner.adapt(loss(learner(x), y))
            (loss(learner(query_x), query_y) / len(tasks)).backward()
        return [value.grad for value in maml.parameters()]

    return step


def _higher(module: nn.Module, tasks: TaskBatch, steps: int) -> Any:
    higher = import_module("higher")
    rule, loss = torch.optim.SGD(module.parameters(), lr=LR), nn.CrossEntropyLoss()

    def step() -> list[Tensor]:
        module.zero_grad()
        for x, y, query_x, query_y in _each(tasks):
            unrolled = higher.innerloop_ctx(module, rule, copy_initial_weights=False)
            with unrolled as (learner, inner):
                for _ in range(steps):
                    inner.step(loss(learner(x), y))
                (loss(learner(query_x), query_y) / len(tasks)).backward()
        return [value.grad for value in module.parameters()]

    return step


def _functional(
    module: nn.Module, theta: dict[str, Tensor], tasks: TaskBatch, steps: int, order: int
) -> Any:
    def step() -> list[Tensor]:
        total = here(torch.zeros(()))
        for x, y, query_x, query_y in _each(tasks):
            params = theta
            for _ in range(steps):
                inner = F.cross_entropy(functional_call(module, params, (x,)), y)
                found = torch.autograd.grad(inner, list(params.values()), create_graph=order == 2)
                params = {k: v - LR * g for (k, v), g in zip(params.items(), found, strict=True)}
            outputs = functional_call(module, params, (query_x,))
            total = total + F.cross_entropy(outputs, query_y)
        return _gradient(total / len(tasks), theta)

    return step


def _floor(module: nn.Module, theta: dict[str, Tensor], tasks: TaskBatch) -> Any:
    def step() -> list[Tensor]:
        assert tasks.query_x is not None
        every = [(tasks.support_x, tasks.support_y), (tasks.query_x, tasks.query_y)]
        outputs = [functional_call(module, theta, (x.flatten(0, 1),)) for x, _ in every]
        labels = [y.flatten() for _, y in every if y is not None]
        return _gradient(F.cross_entropy(torch.cat(outputs), torch.cat(labels)), theta)

    return step


def _each(tasks: TaskBatch) -> Any:
    assert tasks.query_x is not None
    assert tasks.query_y is not None
    return zip(tasks.support_x, tasks.support_y, tasks.query_x, tasks.query_y, strict=True)


def _gradient(value: Tensor, theta: dict[str, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(theta.values())))
