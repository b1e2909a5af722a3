"""A learned signature: a small network over the samples of a task, trained on the bank alone.

Symbols: B tasks, n samples of a task, c numbers of a sample, H hidden units, r the dimension of a
signature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.tasks import TaskBatch
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.samples import (
    Standardization,
    in_blocks,
    masked_mean,
    queries_as_support,
    read_samples,
)

_HIDDEN = 64
#: Tasks that are told apart in a step.
_BATCH = 128
#: Of AdamW; the rate falls to 0 along a cosine.
_RATE, _DECAY = 2e-3, 1e-2
#: One bank task in so many is held out of the training, and tells how it went.
_HELD_OUT = 5


class Samples(NamedTuple):
    """Samples [B, n, c] of tasks, and the mask [B, n]."""

    z: Tensor
    keep: Tensor

    def of(self, index: slice | Tensor) -> Samples:
        """Those of some tasks."""
        return Samples(self.z[index], self.keep[index])


class Learned(SignatureMap):
    """Signatures ``[B, r]`` in float64: a network on sets (Zaheer et al. 2017), mean inside.

        s(D) = mean over samples z of D of h(z), times V;   h two layers of H rectified units

    z is phi(x) in classification and (x, y) in regression, standardised. The network is trained
    to tell bank tasks apart by other samples of theirs (InfoNCE, van den Oord et al. 2018): with
    s_i from the support of task i and q_i from as many of its queries, drawn anew at each step,

        loss = - mean over i of (log p(i | s_i) + log p(i | q_i)) / 2,
        p(j | s_i) = exp(-|s_i - q_j|^2) / sum over tasks l of exp(-|s_i - q_l|^2),

    so that distances of signatures are in units of what few samples blur. No group of tasks and no
    label of a target enters. Trained in float32; the generator decides every draw.

    ``state`` has ``contrast_accuracy``: how many of the bank tasks held out of the training
    (a fifth) have their own queries nearest to their support, among all that are held out.

    Raises ``PluginError`` if the tasks that it is fitted on have no queries, and for use before.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        super().__init__(options, kernel_name)
        self._standardize: Standardization | None = None
        self._network: list[Tensor] = []
        self._state: dict[str, float] = {}

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Standardise by the sample, train on four fifths of it."""
        other = queries_as_support(sample, self.kernel_name, "learned")
        parts, keep = self._parts(sample)
        self._standardize = Standardization.of(*(part[keep] for part in parts))
        support, queries = (
            Samples(z.float(), keep) for z, keep in (self._samples(sample), self._samples(other))
        )
        held = slice(len(sample) - len(sample) // _HELD_OUT, len(sample))
        rest = slice(0, held.start)
        fresh = _fresh(support.z.shape[-1], self.options.dimension, generator)
        network = [layer.to(keep.device) for layer in fresh]
        with torch.enable_grad():
            _train(network, support.of(rest), queries.of(rest), self.options.steps, generator)
        self._network = [layer.detach().double() for layer in network]
        self._state = _accuracy(network, support.of(held), queries.of(held))

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if not self._network:
            raise self.unfitted("learned")
        return in_blocks(lambda some: _encode(self._network, self._samples(some)), tasks)

    def state(self) -> dict[str, float | str]:
        return {**self._state}

    def _samples(self, tasks: TaskBatch) -> Samples:
        """Of unit variance on average, as layers like their inputs."""
        assert self._standardize is not None
        parts, keep = self._parts(tasks)
        z = torch.cat(parts, -1)
        return Samples(self._standardize(z) * math.sqrt(z.shape[-1]), keep)

    def _parts(self, tasks: TaskBatch) -> tuple[list[Tensor], Tensor]:
        return read_samples(tasks, self.options, self.kernel_name)


def _fresh(width: int, dimension: int, generator: torch.Generator) -> list[Tensor]:
    """Weights [in, out] and biases of the two layers, and V (He et al. 2015)."""
    network = []
    for inputs, outputs in ((width, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, dimension)):
        weight = torch.randn(inputs, outputs, generator=generator) * math.sqrt(2 / inputs)
        network += [weight, torch.zeros(outputs)]
    return network[:-1]


def _encode(network: list[Tensor], samples: Samples) -> Tensor:
    """[B, r]."""
    w1, b1, w2, b2, v = network
    hidden = torch.relu(torch.relu(samples.z @ w1 + b1) @ w2 + b2)
    return masked_mean(hidden, samples.keep) @ v


def _train(
    network: list[Tensor],
    support: Samples,
    queries: Samples,
    steps: int,
    generator: torch.Generator,
) -> None:
    """Train the network in place."""
    for layer in network:
        layer.requires_grad_()
    optimizer = torch.optim.AdamW(network, lr=_RATE, weight_decay=_DECAY)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = _RATE * (1 + math.cos(math.pi * step / steps)) / 2
        ids = torch.randperm(len(support.z), generator=generator)[:_BATCH]
        other = _some(queries, ids, support.z.shape[1], generator)
        closeness = _closeness(network, support.of(ids), other)
        own = torch.arange(len(ids), device=closeness.device)
        loss = F.cross_entropy(closeness, own) + F.cross_entropy(closeness.T, own)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _some(samples: Samples, ids: Tensor, count: int, generator: torch.Generator) -> Samples:
    """At most ``count`` samples of each of the tasks ``ids``, drawn from those that it has."""
    keep = samples.keep[ids]
    keys = torch.rand(keep.shape, generator=generator).to(keep.device)
    chosen = torch.where(keep, keys, 2.0).argsort(1)[:, :count]
    return Samples(samples.z[ids[:, None], chosen], keep.gather(1, chosen))


def _closeness(network: list[Tensor], support: Samples, queries: Samples) -> Tensor:
    """[B, B]: ``-|s_i - q_j|^2``."""
    s, q = _encode(network, support), _encode(network, queries)
    return 2 * s @ q.T - s.square().sum(1)[:, None] - q.square().sum(1)


def _accuracy(network: list[Tensor], support: Samples, queries: Samples) -> dict[str, float]:
    """As the record has it; nothing where there is nothing to tell apart."""
    if len(support.z) < 2:
        return {}
    with torch.no_grad():
        nearest = _closeness(network, support, queries).argmax(1)
    own = torch.arange(len(nearest), device=nearest.device)
    return {"contrast_accuracy": float((nearest == own).double().mean())}
