"""What ``ls`` and ``r2d2`` share: ridge regression on learned features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm, Model, Params, Tree
from metaforge.errors import PluginError
from metaforge.precision import forward_pass
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_ls.feature_map import FeatureMap, NetworkMap, ResidualMap
from metaforge_ls.options import MapOptions
from metaforge_ls.ridge import ridge_weights


class ClosedForm(InnerAlgorithm):
    """Ridge regression from psi(x) to one-hot labels (or real targets), in closed form.

        W(D) = X^T (X X^T + ridge I)^-1 Y,   X = psi(support inputs)
        output(x) = scale psi(x) W(D) + bias

    theta holds the parameters of psi, ``w0`` [p, h] and ``w1`` [h, p] of a residual layer or
    those of a ``network`` (``metaforge_ls.feature_map``), and the scalars that a subclass names.
    They serve any number of classes and shots, so ``losses`` and ``predict`` need no ``init``
    before them, but for the one that makes a network.
    Computed in theta's precision, on all tasks at once; ``precision: bf16`` has psi, and its
    products with W, in bfloat16, the regression and the losses as they were.

    Raises ``PluginError`` for parameters that are missing or do not fit the inputs.
    """

    variable_ways = True
    vmappable = True
    mixed_precision = True
    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    options: MapOptions
    #: The component's name, for messages.
    name: ClassVar[str]
    #: Beside the feature map's, the names of theta's scalars.
    scalars: ClassVar[tuple[str, ...]] = ()
    _regression = False

    def __init__(
        self,
        options: Any = None,
        context: Context | None = None,
        *,
        network: Model | nn.Module | None = None,
    ):
        super().__init__(options, context)
        self.map: FeatureMap = ResidualMap(self.options, self.context, self.name)
        if network is not None:
            self.map = NetworkMap(network, self.context, self.name)
            self.vmappable = False

    @abstractmethod
    def _ridge(self, params: Params) -> float | Tensor:
        """The strength of the penalty, above 0."""

    @abstractmethod
    def query_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """[B]: the outer loss of outputs [B, Q, o], the mean over each task's queries."""

    def _calibration(self, params: Params) -> tuple[Tensor, Tensor] | None:
        """(scale, bias), two scalars; None for 1 and 0."""
        return None

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        self._regression = shape.kind == "regression"
        return self.map.init(shape, generator)

    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        tasks = self._fitting(params, tasks)
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        outputs = self._outputs(params, tasks, tasks.query_x, tasks.query_mask)
        return self.query_losses(params, outputs, tasks.query_y, tasks.query_mask)

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        support = self._fitting(params, support)
        mask = support.support_mask.new_ones(query_x.shape[:2])
        return self._outputs(params, support, query_x.to(mask.dtype), mask)

    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        """``{"head": [B, p, o]}``: W(D) of each task."""
        return {"head": self._heads(params, self._fitting(params, support)).mT}

    @torch.no_grad()
    def features(self, params: Params, x: Tensor) -> Tensor:
        """[n, p]: psi(x)."""
        x = x.to(_dtype(params)).clone()[None]
        return self.map.features(params, self.map.inputs(x, self._regression)[0])

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        if len(support) != 1:
            raise PluginError(
                f"{self.name}: export takes one task; found a batch of {len(support)}"
            )
        (head,) = self.adapt(params, support)["head"]
        scale, bias = self._calibration(params) or (1.0, None)
        return self.map.exported(params, scale * head, bias, support.is_regression)

    @torch.no_grad()
    def diagnose(self, params: Params, tasks: TaskBatch, *, noise: Tree = None) -> str | None:
        tasks = self._fitting(params, tasks)
        assert tasks.query_x is not None
        support = self._support_features(params, tasks)
        stages = {
            **params,
            "support inputs": tasks.support_x[tasks.support_mask > 0],
            "query inputs": tasks.query_x[tasks.query_mask > 0],
            "support features": support,
            "support Gram matrix": torch.bmm(support, support.mT),
            "head": self._heads(params, tasks),
            "outputs": self._outputs(params, tasks, tasks.query_x, tasks.query_mask),
            "query loss": self.losses(params, tasks),
        }
        bad = (name for name, value in stages.items() if not value.isfinite().all())
        return next((f"tensor {name!r}" for name in bad), None)

    def describe(self) -> dict[str, Any]:
        options = self.options.model_dump(exclude_none=True)
        if self.options.network is not None:
            options = {k: v for k, v in options.items() if k not in ("hidden", "normalize")}
        return {"order": self.order, **options}

    def _outputs(self, params: Params, support: TaskBatch, query_x: Tensor, mask: Tensor) -> Tensor:
        """[B, Q, o]: the adapted predictors' answers."""
        heads = self._heads(params, support)
        x = self._inputs(query_x, mask, support.is_regression)
        with forward_pass(self.context):
            outputs = self.map.products(params, x, heads)
        outputs = outputs.to(heads.dtype)
        if (calibration := self._calibration(params)) is None:
            return outputs
        scale, bias = calibration
        return scale * outputs + bias

    def _heads(self, params: Params, support: TaskBatch) -> Tensor:
        """[B, o, p]: W(D) transposed."""
        x = self._support_features(params, support)
        y = targets(support.support_y, support.outputs, x.dtype)
        y = y.masked_fill(_padding(y, support.support_mask), 0.0)
        return ridge_weights(x, y, self._ridge(params))

    def _support_features(self, params: Params, support: TaskBatch) -> Tensor:
        """[B, S, p]; zero for padding."""
        mask = support.support_mask
        x = self._inputs(support.support_x, mask, support.is_regression)
        with forward_pass(self.context):
            features = self.map.features(params, x.flatten(0, 1))
        features = features.to(x.dtype).unflatten(0, x.shape[:2])
        if self.map.keeps_zero:
            return features
        return features.masked_fill(_padding(features, mask), 0.0)

    def _inputs(self, x: Tensor, mask: Tensor, regression: bool) -> Tensor:
        """[B, n, *]: what psi takes, from raw inputs [B, n, *x]; zero for padding."""
        return self.map.inputs(x.masked_fill(_padding(x, mask), 0.0), regression)

    def _fitting(self, params: Params, tasks: TaskBatch) -> TaskBatch:
        """The tasks in theta's precision, once theta is found to fit them."""
        missing = [name for name in (*self.map.names, *self.scalars) if name not in params]
        if missing:
            raise PluginError(
                f"{self.name}: theta has no {' nor '.join(missing)} (it has "
                f"{', '.join(params) or 'nothing'}); init gives fresh parameters"
            )
        if message := self.map.unfit(params, tasks):
            raise PluginError(message)
        return tasks.to(dtype=_dtype(params))


def _dtype(params: Params) -> torch.dtype:
    return next(iter(params.values())).dtype


def targets(y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
    """[B, n, o]: what the head regresses on, one-hot rows of class ids [B, n] or real y."""
    if y.is_floating_point():
        return y
    return (y[..., None] == torch.arange(outputs, device=y.device)).to(dtype)


def _padding(values: Tensor, mask: Tensor) -> Tensor:
    """Where the rows of values [B, n, *] are padding."""
    return (mask == 0).reshape(*mask.shape, *[1] * (values.ndim - 2))
