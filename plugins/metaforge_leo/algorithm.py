"""The inner algorithm ``leo``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metaforge import losses
from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_leo import networks
from metaforge_leo.inner import Adaptation, InnerLoops
from metaforge_leo.networks import Classes
from metaforge_leo.noise import Noise, NoiseShape
from metaforge_leo.options import LeoOptions


@dataclass(frozen=True)
class Outcome:
    """A batch's losses and what they are made of.

    adaptation       codes and class weights at every step
    kl               [B]  divergence of the codes' distribution from N(0, 1), unweighted
    encoder_penalty  [B]  mean squared distance of the first codes from the last, unweighted
    query_logits     [B, Q, N]
    query_loss       [B]  mean cross-entropy over a task's queries
    loss             [B]  query_loss + weighted kl + weighted encoder_penalty
    """

    adaptation: Adaptation
    kl: Tensor
    encoder_penalty: Tensor
    query_logits: Tensor
    query_loss: Tensor
    loss: Tensor


class Leo(InnerAlgorithm):
    """Latent embedding optimisation (Rusu et al. 2019), as its authors' code computes it.

    A linear encoder and a relation network give each class a normal distribution of codes z;
    a linear decoder gives each code a normal distribution of class weights w. Then

        z <- z - inner_lr * grad_z L(w(z)),    inner_unroll_length times, and
        w <- w - finetuning_lr * grad_w L(w),  finetuning_unroll_length times,

    with both rates learned, an entry a column, and L the *summed* cross-entropy of the support,
    differentiated to second order. Each support row carries a code of its own class, and a
    class's logit is the mean over its rows' weights. ``losses`` are

        L(D^val) / n + kl_weight KL + encoder_penalty_weight mean (z_0 - z_L)^2

    with z_L held constant. In training (``noise`` from ``draw_noise``) codes and weights are
    samples and inputs are dropped out; at evaluation they are means, and the last two terms 0.
    ``penalty`` adds l2 and the decoder's orthogonality.

    theta, ``[in, out]`` for inputs of width E and codes of width l: ``leo.encoder.linear.w``
    [E, l], ``leo.relation_network.mlp.linear_{0,1,2}.w`` [2l, 2l], ``leo.decoder.linear.w``
    [l, 2E], ``leo.leo_inner.lr`` [1, 1, l], ``leo.finetuning.lr`` [1, 1, E]; a loop of 0 steps
    has no rate. Any number of ways and unequal shots are served; a class without support rows
    keeps weights of 0.

    Inputs are vectors, meant to be of unit length (the data's ``normalize: l2``).
    Raises ``PluginError`` for other inputs, regression, and missing or too small noise.
    """

    # has_inner_loop stays False: the steps move codes and class weights, not theta, so that
    # none of them is not the identity on theta.
    variable_ways = True
    vmappable = True
    options: LeoOptions

    def __init__(self, options: LeoOptions | None = None, context: Context | None = None):
        super().__init__(options or LeoOptions(), context)
        self.noise_shape: NoiseShape | None = None

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        if shape.kind != "classification":
            raise PluginError(f"leo: serves classification tasks; these are {shape.kind}")
        if message := self.options.unfit_inputs(shape.input_shape):
            raise PluginError(message)
        options, width = self.options, shape.input_shape[0]
        self.noise_shape = self._noise_shape(shape)
        params = networks.initial(width, options.num_latents, generator)
        rates = {}
        if options.inner_unroll_length:
            rates[networks.INNER_LR] = (options.num_latents, options.inner_lr_init)
        if options.finetuning_unroll_length:
            rates[networks.FINETUNING_LR] = (width, options.finetuning_lr_init)
        for name, (columns, start) in rates.items():
            params[name] = torch.full((1, 1, columns), start, dtype=torch.float64)
        dtype = getattr(torch, self.context.dtype)
        return {name: value.to(self.context.device, dtype) for name, value in params.items()}

    def _noise_shape(self, shape: TaskShape) -> NoiseShape:
        options = self.options
        return NoiseShape(
            rows=shape.outputs * shape.shots,
            # a support set may be its own query
            queries=shape.outputs * max(shape.queries, shape.shots),
            latents=options.num_latents,
            width=shape.input_shape[0],
            decoder_calls=options.inner_unroll_length + 1,
            predictions=options.inner_unroll_length + max(1, options.finetuning_unroll_length),
            dropout_rate=options.dropout_rate,
        )

    def draw_noise(self, generator: torch.Generator, n_tasks: int) -> Tree:
        """The arrays of ``metaforge_leo.noise.Noise`` by name, for tasks of init's shape."""
        dtype = getattr(torch, self.context.dtype)
        return self._ready().draw(generator, n_tasks, self.context.device, dtype)

    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        """[B, N, E]: each task's class weights; by means, or with ``noise`` as in training."""
        self._check(support)
        drawn = None if noise is None else self._ready().read(noise, support)
        return self._adapt(params, support, drawn)[0].weights[-1]

    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        """[B]. ``noise`` is read in training alone, where it has to be given."""
        return self.outcome(params, tasks, training=training, noise=noise).loss

    def outcome(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Outcome:
        """The losses with their parts and every inner step."""
        self._check(tasks)
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        drawn = self._ready().read(noise, tasks) if training else None
        adaptation, kl, penalty = self._adapt(params, tasks, drawn)
        x = tasks.query_x
        if drawn is not None and drawn.dropout_query is not None:
            x = x * drawn.dropout_query
        logits = x @ adaptation.weights[-1].mT
        query_loss = losses.task_losses(logits, tasks.query_y, tasks.query_mask)
        loss = query_loss
        if drawn is not None:
            options = self.options
            loss = loss + options.kl_weight * kl + options.encoder_penalty_weight * penalty
        return Outcome(adaptation, kl, penalty, logits, query_loss, loss)

    def _adapt(
        self, params: Params, tasks: TaskBatch, noise: Noise | None
    ) -> tuple[Adaptation, Tensor, Tensor]:
        """The inner loops, and the codes' KL [B] and distance moved [B]."""
        options, x = self.options, tasks.support_x
        classes = Classes.of(tasks)
        if noise is not None and noise.dropout_encoder is not None:
            x = x * noise.dropout_encoder
        codes = networks.class_codes(params, x, classes)
        zero = codes.new_zeros(len(tasks))
        if noise is None:
            latents, kl = classes.one_hot @ codes.chunk(2, -1)[0], zero
        else:
            latents, kl = networks.sample_codes(codes, classes, noise.latents)
        loops = InnerLoops(params, tasks, classes, noise)
        done = loops.run(latents, options.inner_unroll_length, options.finetuning_unroll_length)
        if noise is None:
            return done, kl, zero
        moved = latents - done.latents[-1].detach()
        return done, kl, networks.row_mean(moved.square(), classes)

    def penalty(self, params: Params) -> Tensor:
        options = self.options
        l2, orthogonality = networks.l2_penalty(params), networks.orthogonality_penalty(params)
        return options.l2_penalty_weight * l2 + options.orthogonality_penalty_weight * orthogonality

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        return query_x @ self.adapt(params, support).mT

    @torch.no_grad()
    def features(self, params: Params, x: Tensor) -> Tensor:
        """[n, l]: each sample's code, before the relation network."""
        return x.to(params[networks.ENCODER].dtype) @ params[networks.ENCODER]

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        """The class weights as a linear layer."""
        if len(support) != 1:
            raise PluginError(f"leo: export takes one task; found a batch of {len(support)}")
        weights = self.adapt(params, support)[0]
        ways, width = weights.shape
        module = nn.Linear(width, ways, bias=False, device=weights.device, dtype=weights.dtype)
        module.weight.copy_(weights)
        return module

    @torch.no_grad()
    def diagnose(self, params: Params, tasks: TaskBatch, *, noise: Tree = None) -> str | None:
        """On means, or under the noise of a training step."""
        outcome = self.outcome(params, tasks, training=noise is not None, noise=noise)
        for step, name, value in self._tensors(params, outcome):
            if not value.isfinite().all():
                return f"inner step {step}, tensor {name!r}"
        return None

    def _tensors(self, params: Params, outcome: Outcome) -> Iterator[tuple[int, str, Tensor]]:
        """(inner step, name, value) in the order of computing; finetuning counts on."""
        done, steps = outcome.adaptation, self.options.inner_unroll_length
        for name, value in params.items():
            yield 0, name, value
        yield 0, "kl", outcome.kl
        last = steps + len(done.weights) - 1
        for step in range(last + 1):
            if step <= steps:
                yield step, "latents", done.latents[step]
            if step >= steps:
                yield step, "class weights", done.weights[step - steps]
            if step < len(done.logits):
                yield step, "support logits", done.logits[step]
        yield last, "query loss", outcome.query_loss

    def describe(self) -> dict[str, Any]:
        options = self.options
        return {
            "order": self.order,
            "inner_unroll_length": options.inner_unroll_length,
            "finetuning_unroll_length": options.finetuning_unroll_length,
            "dropout_rate": options.dropout_rate,
        }

    def _ready(self) -> NoiseShape:
        if self.noise_shape is None:
            raise PluginError("leo: call init(shape, generator) first; it fixes the tasks' shape")
        return self.noise_shape

    def _check(self, tasks: TaskBatch) -> None:
        """Once the tasks are found to fit what ``init`` was told."""
        width = self._ready().width
        if tasks.is_regression or tasks.support_x.shape[2:] != (width,):
            raise PluginError(
                f"leo: initialised for classification of inputs of shape [{width}], but the tasks "
                f"have inputs of shape {list(tasks.support_x.shape[2:])}"
                f"{' and real targets' * tasks.is_regression}"
            )
