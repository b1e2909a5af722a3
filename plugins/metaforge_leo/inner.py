"""LEO's inner loops on whole batches, by explicit gradients (Rusu et al. 2019, algorithm 1).

Each support row s carries a code z_s and the class weights W_s decoded from it. A logit is the
mean over the rows of a class, so that the loss sees only the class means V = A W, A the average
over each class's rows, and with R = softmax - one-hot on the support X, the gradients of the
*summed* cross-entropy are

    dV = R^T X,    dW = A^T dV,    dz = dW (D_m + noise std'(u) D_u)^T,    u = z D_u

for W = z D_m + noise std(u), D_m and D_u the decoder's halves. These are ordinary expressions,
so the outer gradient, second order included, is one backward pass. V = (A z) D_m + A (noise std)
decodes means once a class, not once a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch
from metaforge_leo import networks
from metaforge_leo.networks import Classes
from metaforge_leo.noise import Noise


@dataclass
class Adaptation:
    """What the inner loops went through.

    latents  [B, S, l]  of each support row, before the first step and after each
    weights  [B, N, E]  class weights, before the first finetuning step and after each
    logits   [B, S, N]  of the support, in the order in which they were computed
    """

    latents: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)


class InnerLoops:
    """The two loops of one batch of tasks. ``noise`` None is evaluation: means, no dropout."""

    def __init__(
        self,
        params: Params,
        tasks: TaskBatch,
        classes: Classes,
        noise: Noise | None,
    ):
        self.params, self.x = params, tasks.support_x
        self.classes, self.noise = classes, noise
        self.mean, self.scale = params[networks.DECODER].chunk(2, 1)
        # Glorot's standard deviation for a map of E inputs to N classes
        self.offset = math.sqrt(2 / (tasks.outputs + self.x.shape[-1]))
        self.done = Adaptation()

    def run(self, latents: Tensor, steps: int, finetuning_steps: int) -> Adaptation:
        """Adapt codes [B, S, l] for some steps, then the class weights that they decode to."""
        done = self.done
        done.latents.append(latents)
        for call in range(steps):
            weights, slope = self._decode(latents, call)
            gradient = self._pull_back(self._gradient(weights), slope)
            latents = latents - self.params[networks.INNER_LR] * gradient
            done.latents.append(latents)
        weights, _ = self._decode(latents, steps)
        done.weights.append(weights)
        if not finetuning_steps:
            self._predict(weights)
        for _ in range(finetuning_steps):
            gradient = self.classes.share * self._gradient(weights)
            weights = weights - self.params[networks.FINETUNING_LR] * gradient
            done.weights.append(weights)
        return done

    def _decode(self, latents: Tensor, call: int) -> tuple[Tensor, Tensor | None]:
        """Class weights V [B, N, E]; and each row's noise times the slope of its std in u."""
        weights = self.classes.mean @ latents @ self.mean
        if self.noise is None:
            return weights, None
        noise = self.noise.decoder[:, call]
        growth = torch.expm1(latents @ self.scale)
        std = networks.spread(growth, self.offset)
        slope = noise * (std > networks.LEAST_STD) * (growth + 1)
        return weights + self.classes.mean @ (noise * std), slope

    def _predict(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, S, N] of the support, and the inputs that they were computed from."""
        x = self.x
        if self.noise is not None and self.noise.dropout_support is not None:
            x = x * self.noise.dropout_support[:, len(self.done.logits)]
        logits = x @ weights.mT
        self.done.logits.append(logits)
        return logits, x

    def _gradient(self, weights: Tensor) -> Tensor:
        """dV [B, N, E]."""
        logits, x = self._predict(weights)
        one_hot = self.classes.one_hot
        residual = logits.softmax(-1) * one_hot.sum(-1, keepdim=True) - one_hot
        return residual.mT @ x

    def _pull_back(self, gradient: Tensor, slope: Tensor | None) -> Tensor:
        """dz [B, S, l] from dV."""
        rows = self.classes.mean.mT
        pulled = rows @ (gradient @ self.mean.mT)
        if slope is None:
            return pulled
        return pulled + (rows @ gradient * slope) @ self.scale.mT
