"""LEO's step (losses of a meta-batch, penalties and their gradient in theta) against a loop.

The loop is what one writes from the paper: task by task, every pair of support rows through the
relation network, inner gradients by ``autograd.grad``. It is also the oracle of the tests, which
hold it to its authors' figures. Both get the same noise, drawn once; drawing it is timed beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import Row, compare, context, here
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_leo.algorithm import Leo
from metaforge_leo.options import LeoOptions

LOOP = "per-task loop"
OURS = "metaforge leo"
BATCH = 12


def rows() -> Iterator[Row]:
    yield row("LEO, 5-shot, training", shots=5, training=True, promised=2.0)
    yield row("LEO, 5-shot, no dropout", shots=5, training=True, dropout_rate=0.0)
    yield row("LEO, 5-shot, on means", shots=5, training=False)
    yield row("LEO, 1-shot, training", shots=1, training=True)


def row(
    name: str,
    *,
    shots: int,
    training: bool,
    promised: float | None = None,
    rounds: int = 15,
    **options: Any,
) -> Row:
    shape, chosen = TaskShape("classification", (640,), 5, shots, queries=15), LeoOptions(**options)
    exact = _callables(shape, chosen, training, "float64")
    # not in float32: d log std / du has no bound near the least std, and rounding decides there
    for found, expected in zip(exact[OURS](), exact[LOOP](), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    return compare(
        name,
        _callables(shape, chosen, training, "float32"),
        peer=LOOP,
        target={} if promised is None else {OURS: promised},
        note=f"5 + 5 steps, dropout {chosen.dropout_rate if training else 0}, 640 features, "
        f"meta-batch {BATCH}, 5-way {shots}-shot 15-query",
        rounds=rounds,
    )


def _callables(
    shape: TaskShape, options: LeoOptions, training: bool, dtype: str
) -> dict[str, Callable[[], Any]]:
    algorithm = Leo(options, context(dtype=dtype))
    theta = algorithm.init(shape, torch.Generator().manual_seed(0))
    theta = {key: value.requires_grad_() for key, value in theta.items()}
    tasks = here(_tasks(shape)).to(dtype=getattr(torch, dtype))
    stream = torch.Generator().manual_seed(0)
    noise = algorithm.draw_noise(stream, BATCH) if training else None

    def loop() -> list[Tensor]:
        pairs = split(tasks, noise)
        losses = torch.stack([task_loss(theta, task, options, own).loss for task, own in pairs])
        return _gradient(losses.mean() + penalty(theta, options), theta)

    def ours() -> list[Tensor]:
        losses = algorithm.losses(theta, tasks, training=training, noise=noise)
        return _gradient(losses.mean() + algorithm.penalty(theta), theta)

    callables: dict[str, Callable[[], Any]] = {LOOP: loop, OURS: ours}
    if training:
        callables["drawing the noise"] = lambda: algorithm.draw_noise(stream, BATCH)
    return callables


def _tasks(shape: TaskShape) -> TaskBatch:
    random = torch.Generator().manual_seed(0)

    def draw(each: int) -> tuple[Tensor, Tensor]:
        n = each * shape.outputs
        x = torch.rand(BATCH, n, *shape.input_shape, generator=random)
        y = (torch.arange(n) % shape.outputs).expand(BATCH, n)
        return F.normalize(x, dim=-1), y.contiguous()

    return TaskBatch(*draw(shape.shots), *draw(shape.queries), outputs=shape.outputs)


def _gradient(value: Tensor, theta: dict[str, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(theta.values())))


# -- one task, as the paper has it ---------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """One task's loss and what it is made of; codes and weights are of each support row."""

    loss: Tensor
    query_loss: Tensor
    kl: Tensor
    encoder_penalty: Tensor
    codes: Tensor  # [S, l], before the first step
    support_loss: Tensor  # the mean one, of ``weights``
    weights: Tensor  # [S, E], before finetuning
    query_logits: Tensor  # [Q, N]


def split(tasks: TaskBatch, noise: Mapping[str, Tensor] | None) -> list[Any]:
    """Each task, as a batch of one, with its noise."""
    return [
        (tasks[[b]], None if noise is None else {name: value[b] for name, value in noise.items()})
        for b in range(len(tasks))
    ]


def task_loss(
    theta: Mapping[str, Tensor],
    task: TaskBatch,
    options: LeoOptions,
    noise: Mapping[str, Tensor] | None,
) -> Parts:
    """The loss of one task without padding; ``noise`` (of this task alone) is training mode."""
    assert task.query_x is not None
    assert task.query_y is not None
    x, y, ways = task.support_x[0], task.support_y[0], task.outputs
    dropouts = iter(() if noise is None else noise.get("dropout_support", ()))

    def logits(inputs: Tensor, weights: Tensor) -> Tensor:
        each = inputs @ weights.T
        return torch.stack([each[:, y == c].mean(1) for c in range(ways)], 1)

    def support_loss(weights: Tensor) -> Tensor:
        return F.cross_entropy(logits(_drop(x, next(dropouts, None)), weights), y, reduction="sum")

    def decode(codes: Tensor, call: int) -> Tensor:
        normal = None if noise is None else noise["decoder"][call]
        offset = math.sqrt(2 / (ways + x.shape[1]))
        return _sample(codes @ theta["leo.decoder.linear.w"], offset, normal)[0]

    start, kl = _codes(theta, x, y, ways, noise or {})
    codes, weights = start, decode(start, 0)
    value = support_loss(weights)
    for call in range(options.inner_unroll_length):
        gradient = torch.autograd.grad(value, codes, create_graph=True)[0]
        codes = codes - theta["leo.leo_inner.lr"][0] * gradient
        weights = decode(codes, call + 1)
        value = support_loss(weights)
    decoded, decoded_loss = weights, value / len(x)
    for step in range(options.finetuning_unroll_length):
        gradient = torch.autograd.grad(value, weights, create_graph=True)[0]
        weights = weights - theta["leo.finetuning.lr"][0] * gradient
        if step + 1 < options.finetuning_unroll_length:
            value = support_loss(weights)

    queries = _drop(task.query_x[0], noise.get("dropout_query") if noise else None)
    outputs = logits(queries, weights)
    query_loss = F.cross_entropy(outputs, task.query_y[0])
    moved = ((start - codes.detach()) ** 2).mean() * (noise is not None)
    loss = query_loss + options.kl_weight * kl + options.encoder_penalty_weight * moved
    return Parts(loss, query_loss, kl, moved, start, decoded_loss, decoded, outputs)


def _codes(
    theta: Mapping[str, Tensor], x: Tensor, y: Tensor, ways: int, noise: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """A code [S, l] for each support row, from every pair of rows; and their KL."""
    encoded = _drop(x, noise.get("dropout_encoder")) @ theta["leo.encoder.linear.w"]
    n = len(encoded)
    pairs = torch.cat([encoded[:, None].expand(n, n, -1), encoded[None].expand(n, n, -1)], -1)
    for i in range(3):
        pairs = pairs @ theta[f"leo.relation_network.mlp.linear_{i}.w"]
        pairs = pairs if i == 2 else torch.relu(pairs)
    related = pairs.mean(1)
    of_class = torch.stack([related[y == c].mean(0) for c in range(ways)])[y]
    return _sample(of_class, 0.0, noise.get("latents"))


def _drop(inputs: Tensor, factor: Tensor | None) -> Tensor:
    return inputs if factor is None else inputs * factor


def _sample(parameters: Tensor, offset: float, normal: Tensor | None) -> tuple[Tensor, Tensor]:
    """A sample from the distribution that the halves (mean, u) give, and its KL; or the mean."""
    mean, u = parameters.chunk(2, -1)
    if normal is None:
        return mean, mean.new_zeros(())
    std = torch.clamp(torch.exp(u) - (1 - offset), min=1e-10)
    # (z - mean) / std is the normal number itself, without the rounding
    value = mean + std * normal
    return value, (value**2 / 2 - normal**2 / 2 - std.log()).mean()


def penalty(theta: Mapping[str, Tensor], options: LeoOptions) -> Tensor:
    """L2 of the five weight matrices and orthogonality of the decoder's rows, weighted."""
    squares = sum((value**2).sum() for name, value in theta.items() if name.endswith(".w"))
    decoder = theta["leo.decoder.linear.w"]
    norms = decoder.norm(dim=1, keepdim=True)
    correlation = decoder @ decoder.T / (norms @ norms.T)
    deviation = correlation - torch.eye(len(decoder)).to(decoder)
    orthogonality = (deviation**2).mean()
    return (
        options.l2_penalty_weight * squares / 2
        + options.orthogonality_penalty_weight * orthogonality
    )
