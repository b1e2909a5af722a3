"""The inner algorithm ``maml``."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metaforge import modules
from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm, Model, Params, Tree
from metaforge.errors import PluginError
from metaforge.modules import Probe
from metaforge.precision import forward_pass
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_learn2learn import peer
from metaforge_maml.backend import Backend, InnerLoop
from metaforge_maml.dense import DenseBackend, affine_names
from metaforge_maml.explicit import written_out
from metaforge_maml.functional import LoopBackend, VmapBackend, agrees_with_loop
from metaforge_maml.learn2learn_backend import Learn2learnBackend
from metaforge_maml.options import MamlOptions

#: On a CPU vmap pays where calls cost more than arithmetic: modules of fewer parameters.
VMAP_LIMIT = 100_000


class Maml(InnerAlgorithm):
    """Model-agnostic meta-learning (Finn et al. 2017, algorithm 1).

        Alg(theta, D) = theta_T,   theta_{t+1} = theta_t - lr grad L(theta_t, D),   theta_0 = theta

    with L the mean cross-entropy (classification) or mean squared error (regression) over the
    support rows. Order 2 differentiates through the gradients, order 1 holds them constant.

    ``model`` is a ``Model``, drawn afresh by ``init``, or any ``nn.Module``, whose own values
    theta starts from. It runs as after ``module.eval()``: dropout is off, batch normalisation
    uses its running statistics, or the batch's where it keeps none (then ``transductive`` is
    true). The module given is never changed; its buffers stay as they are.

    Raises ``PluginError`` for a module that does not give ``[n, outputs]``, for parameters that
    are frozen or that the output does not depend on (unless ``allow_unused``, which holds them
    constant and out of theta), and for a missing learn2learn where it is asked for.
    """

    has_inner_loop = True
    mixed_precision = True
    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    options: MamlOptions

    def __init__(
        self, options: MamlOptions, context: Context | None = None, *, model: Model | nn.Module
    ):
        super().__init__(options, context)
        modules.refuse_other_models(model, "maml")
        self.model = model
        self.order = options.order
        self.shape: TaskShape | None = None
        self.backend: Backend | None = None
        if options.backend == "learn2learn":
            if self.context.mixed:
                raise PluginError(
                    "maml: precision: bf16 is not for backend: learn2learn, which computes in one "
                    "precision; take backend: vectorized, or precision: float32"
                )
            peer.load()

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        module, found = modules.prepare(
            self.model,
            shape,
            generator,
            self.context,
            who="maml",
            allow_unused=self.options.allow_unused,
        )
        self.transductive = found.transductive
        self.shape = shape
        self.module = module
        self.backend = backend = self._choose(found, shape)
        self.vmappable = backend.vmappable
        return modules.parameters(module)

    def _choose(self, found: Probe, shape: TaskShape) -> Backend:
        """The fastest implementation that is right for the module."""
        options, module = self.options, self.module
        loop = self._loop(options.steps, options.order == 2, options.support_chunk)
        if options.backend == "learn2learn":
            return Learn2learnBackend(module, loop, shape, self.transductive)
        if options.backend == "vmap":
            return self._vmapped(loop, shape)
        if options.support_chunk is not None:
            if self.transductive:
                raise PluginError(
                    "maml: support_chunk changes what a model that uses the statistics of its "
                    "batch computes; leave it out, or use a model that is not transductive"
                )
            return LoopBackend(module, loop)
        if options.backend == "loop":
            return LoopBackend(module, loop, self.transductive)
        # its explicit gradients are no forward pass of a network
        if affine_names(module) is not None and not self.context.mixed:
            classes = shape.outputs if shape.kind == "classification" else 1
            return DenseBackend(module, loop, shape.shots * classes)
        on_cpu = _on_cpu(module)
        if on_cpu and (found.runs("convolution") or _size(module) > VMAP_LIMIT):
            return LoopBackend(module, loop, self.transductive)
        vmapped = module if on_cpu else written_out(module)
        if not self.transductive and agrees_with_loop(module, vmapped, shape, loop.second_order):
            return VmapBackend(vmapped, loop)
        return LoopBackend(module, loop, self.transductive)

    def _vmapped(self, loop: InnerLoop, shape: TaskShape) -> Backend:
        """All tasks at once, as was asked for."""
        name = type(self.module).__name__
        if self.transductive:
            raise PluginError(
                f"maml: backend: vmap cannot serve {name}, which uses the statistics of its batch "
                "(norm: batch): take backend: loop, or a model that does not (norm: layer)"
            )
        vmapped = written_out(self.module)
        if not agrees_with_loop(self.module, vmapped, shape, loop.second_order):
            raise PluginError(
                f"maml: backend: vmap cannot run {name}, or differentiates it wrongly: take "
                "backend: loop, or auto, which does"
            )
        return VmapBackend(vmapped, loop)

    def _loop(self, steps: int, second_order: bool, chunk: int | None = None) -> InnerLoop:
        forward = partial(forward_pass, self.context)
        return InnerLoop(steps, self.options.lr, second_order, chunk, forward)

    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        """``{name: [B, *shape]}``: theta_T of each task."""
        return self._ready(support).adapt(params, support)

    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        return self._ready(tasks).losses(params, tasks)

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        return self._ready(support).outputs(params, support, query_x)

    def features(self, params: Params, x: Tensor) -> Tensor | None:
        """[n, w]: what the model's last affine layer sees, at theta itself, not adapted."""
        return None if self.transductive else modules.features(self.module, params, x)

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        if len(support) != 1:
            raise PluginError(f"maml: export takes one task; found a batch of {len(support)}")
        return modules.with_values(self.module, self.adapt(params, support))

    @torch.no_grad()
    def diagnose(self, params: Params, tasks: TaskBatch, *, noise: Tree = None) -> str | None:
        inner = self._loop(1, second_order=False)
        loop = LoopBackend(self.module, inner, self.transductive)
        pairs = zip(loop.support_rows(tasks), loop.query_rows(tasks), strict=True)
        for support, query in pairs:
            theta = dict(params)
            for step in range(self.options.steps + 1):
                for name, value in theta.items():
                    if not value.isfinite().all():
                        return f"inner step {step}, tensor {name!r}"
                if not loop.mean_loss(theta, support).isfinite():
                    return f"inner step {step}, tensor 'support loss'"
                if step < self.options.steps:
                    theta = loop.step(theta, support)
            if not loop.mean_loss(theta, query).isfinite():
                return f"inner step {self.options.steps}, tensor 'query loss'"
        return None

    def describe(self) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {
            "backend": "vectorized" if options.backend == "auto" else options.backend,
            "order": self.order,
            "steps": options.steps,
            "lr": options.lr,
        }
        if self.backend is not None:
            found["implementation"] = self.backend.implementation
        return found

    def _ready(self, tasks: TaskBatch) -> Backend:
        """The backend, once the tasks are found to fit what ``init`` was told."""
        modules.refuse_other_tasks(self.shape, tasks, "maml")
        assert self.backend is not None
        return self.backend


def _on_cpu(module: nn.Module) -> bool:
    return next(module.parameters()).device.type == "cpu"


def _size(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())
