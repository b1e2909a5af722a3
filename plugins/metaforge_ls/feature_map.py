"""What the closed-form heads regress on: features of the inputs, by a map that is learned.

Symbols: B tasks, n samples, p features, o outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaforge import modules
from metaforge.components import Context
from metaforge.contracts import Model, Params
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_ls.exported import AdaptedHead, AdaptedNetwork
from metaforge_ls.options import MapOptions
from metaforge_ls.residual_map import draw, normalize_, psi, psi_products


class FeatureMap(ABC):
    """A map whose parameters theta holds. ``names`` are known once ``init`` was called, or
    always. Raises ``PluginError`` for inputs and models that it cannot serve."""

    names: tuple[str, ...] = ()
    #: Whether the features of an input of zeros are zeros, as they must be for padding.
    keeps_zero = False

    @abstractmethod
    def init(self, shape: TaskShape, generator: torch.Generator) -> Params: ...

    @abstractmethod
    def unfit(self, params: Params, tasks: TaskBatch) -> str:
        """Why theta does not fit the tasks' inputs, or nothing. All ``names`` are there."""

    @abstractmethod
    def inputs(self, x: Tensor, regression: bool) -> Tensor:
        """What ``features`` takes of raw inputs [B, n, *x], [B, n, *]; may use up x."""

    @abstractmethod
    def features(self, params: Params, x: Tensor) -> Tensor:
        """[n, p] of x [n, *]."""

    @abstractmethod
    def products(self, params: Params, x: Tensor, heads: Tensor) -> Tensor:
        """[B, n, o]: features of x [B, n, *] times each task's rows ``heads`` [B, o, p]."""

    @abstractmethod
    def exported(
        self, params: Params, weight: Tensor, bias: Tensor | None, regression: bool
    ) -> nn.Module:
        """``features(x) weight + bias`` as a module of its own, for ``weight`` [p, o]."""


class ResidualMap(FeatureMap):
    """``psi`` of ``metaforge_ls.residual_map``; theta holds ``w0`` [p, h] and ``w1`` [h, p]. The
    features are as many as the inputs' numbers, which suits embeddings."""

    names = ("w0", "w1")
    keeps_zero = True

    def __init__(self, options: MapOptions, context: Context, who: str):
        self.options, self.context, self.who = options, context, who

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        width = torch.Size(shape.input_shape).numel()
        dtype = getattr(torch, self.context.dtype)
        drawn = draw(width, self.options.hidden or width, generator, dtype)
        return {name: value.to(self.context.device) for name, value in drawn.items()}

    def unfit(self, params: Params, tasks: TaskBatch) -> str:
        w0, w1 = params["w0"], params["w1"]
        width = tasks.support_x.shape[2:].numel()
        if w0.ndim == 2 and len(w0) == width and w1.shape == w0.shape[::-1]:
            return ""
        return (
            f"{self.who}: w0 {list(w0.shape)} and w1 {list(w1.shape)} do not fit inputs of "
            f"{width} numbers; expected [{width}, h] and [h, {width}]. init gives fresh ones"
        )

    def inputs(self, x: Tensor, regression: bool) -> Tensor:
        x = x.flatten(2)
        return normalize_(x) if self._normalizes(regression) else x

    def features(self, params: Params, x: Tensor) -> Tensor:
        return psi(x, params["w0"], params["w1"])

    def products(self, params: Params, x: Tensor, heads: Tensor) -> Tensor:
        return psi_products(x, params["w0"], params["w1"], heads)

    def exported(
        self, params: Params, weight: Tensor, bias: Tensor | None, regression: bool
    ) -> nn.Module:
        normalize = self._normalizes(regression)
        return AdaptedHead(params["w0"], params["w1"], weight, bias, normalize=normalize)

    def _normalizes(self, regression: bool) -> bool:
        return self.options.normalize and not regression


class NetworkMap(FeatureMap):
    """A network without its last affine layer; theta holds its other parameters, as
    ``map.NAME``. Inputs are taken as they are, images as images.

    Raises ``PluginError`` for a model that uses the statistics of its batch, or that does not
    end in an affine layer.
    """

    def __init__(self, model: Model | nn.Module, context: Context, who: str):
        modules.refuse_other_models(model, who)
        self.model, self.context, self.who = model, context, who
        self.body: nn.Module | None = None

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        module, found = modules.prepare(self.model, shape, generator, self.context, who=self.who)
        if found.transductive:
            raise PluginError(
                f"{self.who}: network uses the statistics of its batch, so that a query's features "
                "depend on the others: take one that does not (norm: layer)"
            )
        self.body = self._without_head(module, shape)
        own = modules.parameters(self.body)
        self.names = tuple(f"map.{name}" for name in own)
        return {f"map.{name}": value for name, value in own.items()}

    def unfit(self, params: Params, tasks: TaskBatch) -> str:
        if self.body is None:
            return f"{self.who}: call init(shape, generator) first; it makes the network"
        return ""

    def inputs(self, x: Tensor, regression: bool) -> Tensor:
        return x

    def features(self, params: Params, x: Tensor) -> Tensor:
        assert self.body is not None
        own = {name.removeprefix("map."): params[name] for name in self.names}
        return functional_call(self.body, own, (x,)).flatten(1)

    def products(self, params: Params, x: Tensor, heads: Tensor) -> Tensor:
        features = self.features(params, x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return torch.bmm(features, heads.mT)

    def exported(
        self, params: Params, weight: Tensor, bias: Tensor | None, regression: bool
    ) -> nn.Module:
        assert self.body is not None
        own = {name.removeprefix("map."): params[name][None] for name in self.names}
        return AdaptedNetwork(modules.with_values(self.body, own), weight, bias)

    def _without_head(self, module: nn.Module, shape: TaskShape) -> nn.Module:
        """A copy whose last layer, which must be the affine one that gives the outputs, passes
        on what it sees."""
        body = modules.without_head(module, modules.random_inputs(module, shape, 2))
        if body is None:
            raise PluginError(
                f"{self.who}: {type(module).__name__} does not end in an affine layer, which the "
                "closed form is to replace: take conv4, resnet12 or mlp, or a module that does"
            )
        return body
