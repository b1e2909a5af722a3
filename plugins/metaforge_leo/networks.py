"""LEO's networks on whole batches: encoder, relation network, decoder, and their penalties.

Weight matrices are ``[in, out]``, without biases. Symbols: B tasks, N classes, S support rows,
E the width of an input, l the width of a code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch

ENCODER = "leo.encoder.linear.w"
RELATION = tuple(f"leo.relation_network.mlp.linear_{i}.w" for i in range(3))
DECODER = "leo.decoder.linear.w"
WEIGHT_MATRICES = (ENCODER, *RELATION, DECODER)
INNER_LR = "leo.leo_inner.lr"
FINETUNING_LR = "leo.finetuning.lr"

#: Least standard deviation.
LEAST_STD = 1e-10


def glorot_uniform(fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    """[in, out], uniform in +-sqrt(6 / (in + out)) (Glorot and Bengio 2010)."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    return torch.empty(fan_in, fan_out).uniform_(-bound, bound, generator=generator)


def initial(width: int, latents: int, generator: torch.Generator) -> Params:
    """The five weight matrices for inputs of a width and codes of a width, in float32."""
    sizes = {ENCODER: (width, latents), DECODER: (latents, 2 * width)}
    sizes |= dict.fromkeys(RELATION, (2 * latents, 2 * latents))
    return {name: glorot_uniform(*sizes[name], generator) for name in WEIGHT_MATRICES}


@dataclass(frozen=True)
class Classes:
    """Which support row is of which class.

    one_hot  [B, S, N]  1 at a row's class; a padding row has none
    mean     [B, N, S]  averages rows over each class; zeros for a class without rows
    share    [B, N, 1]  1/k for a class of k rows, 0 for one without
    row      [B, 1, S]  each row's share of the support: 1/n, 0 for padding
    """

    one_hot: Tensor
    mean: Tensor
    share: Tensor
    row: Tensor

    @classmethod
    def of(cls, tasks: TaskBatch) -> Classes:
        mask = tasks.support_mask
        labels = torch.arange(tasks.outputs, device=mask.device)
        one_hot = (tasks.support_y[..., None] == labels).to(mask.dtype) * mask[..., None]
        counts = one_hot.sum(1)
        share = (counts > 0) / counts.clamp(min=1)
        mean = one_hot.mT * share[..., None]
        return cls(one_hot, mean, share[..., None], (mask / mask.sum(1, keepdim=True))[:, None])


def class_codes(params: Params, x: Tensor, classes: Classes) -> Tensor:
    """[B, N, 2l]: mean and log-scale u of each class's code, from its rows' inputs [B, S, E].

    The relation network g sees every ordered pair of a task's rows; a class's code is the mean
    of ``g(c_i, c_j)`` over its own rows i and all rows j. Before the first relu g acts on the
    two halves apart, and after the last one it is linear: so only the layer between runs on
    pairs, and the means are taken before the last layer.
    """
    first, second, third = (params[name] for name in RELATION)
    codes = x @ params[ENCODER]
    left, right = first.split(codes.shape[-1])
    pairs = torch.relu((codes @ left)[:, :, None] + (codes @ right)[:, None])
    pairs = torch.relu(pairs @ second).flatten(1, 2)
    weights = (classes.mean[..., None] * classes.row[..., None, :]).flatten(2)
    return weights @ pairs @ third


def spread(growth: Tensor, offset: float) -> Tensor:
    """The standard deviation ``max(exp(u) - (1 - offset), 1e-10)``, from expm1(u): near the
    bound the difference of exp(u) and 1 would be rounding noise."""
    return (growth + offset).clamp(min=LEAST_STD)


def sample_codes(codes: Tensor, classes: Classes, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A code [B, S, l] for each support row, from its class's distribution; and their KL [B].

    The divergence from N(0, 1) is the Monte-Carlo one, the mean over real rows and entries of
    ``log q(z) - log N(z; 0, 1) = (z^2 - noise^2) / 2 - log std``. Written in the noise that made
    z it divides by no std, which may be 1e-10.
    """
    mean, u = (classes.one_hot @ codes).chunk(2, -1)
    std = spread(torch.expm1(u), offset=0.0)
    sampled = mean + std * noise
    divergence = 0.5 * (sampled.square() - noise.square()) - std.log()
    return sampled, row_mean(divergence, classes)


def row_mean(values: Tensor, classes: Classes) -> Tensor:
    """[B]: the mean of values [B, S, l] over a task's real rows and the last axis."""
    return (classes.row @ values).mean((1, 2))


def l2_penalty(params: Params) -> Tensor:
    """Half the squares of the five weight matrices; the learned rates are left out."""
    return 0.5 * torch.stack([params[name].square().sum() for name in WEIGHT_MATRICES]).sum()


def orthogonality_penalty(params: Params) -> Tensor:
    """Mean squared deviation of the decoder rows' cosine similarities [l, l] from the identity."""
    rows = F.normalize(params[DECODER], dim=1)
    identity = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    return (rows @ rows.mT - identity).square().mean()
