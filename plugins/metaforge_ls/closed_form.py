"""What ``ls`` and ``r2d2`` share: ridge regression on learned features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_ls.exported import AdaptedHead
from metaforge_ls.options import MapOptions
from metaforge_ls.residual_map import draw, normalize_, psi, psi_products
from metaforge_ls.ridge import ridge_weights


class ClosedForm(InnerAlgorithm):
    """Ridge regression from psi(x) to one-hot labels (or real targets), in closed form.

        W(D) = X^T (X X^T + ridge I)^-1 Y,   X = psi(support inputs)
        output(x) = scale psi(x) W(D) + bias

    theta holds ``w0`` [p, h] and ``w1`` [h, p] of psi (``metaforge_ls.residual_map``), and the
    scalars that a subclass names. They serve any number of classes and shots, so ``losses`` and
    ``predict`` need no ``init`` before them. The features are as many as the inputs, which
    suits embeddings. Computed in theta's precision, on all tasks at once.

    Raises ``PluginError`` for parameters that are missing or do not fit the inputs.
    """

    variable_ways = True
    vmappable = True
    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    options: MapOptions
    #: The component's name, for messages.
    name: ClassVar[str]
    #: Beside ``w0`` and ``w1``, the names of theta's scalars.
    scalars: ClassVar[tuple[str, ...]] = ()
    _regression = False

    @abstractmethod
    def _ridge(self, params: Params) -> float | Tensor:
        """The strength of the penalty, above 0."""

    @abstractmethod
    def _task_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """[B]: the outer loss of outputs [B, Q, o], the mean over each task's queries."""

    def _calibration(self, params: Params) -> tuple[Tensor, Tensor] | None:
        """(scale, bias), two scalars; None for 1 and 0."""
        return None

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        self._regression = shape.kind == "regression"
        width = torch.Size(shape.input_shape).numel()
        dtype = getattr(torch, self.context.dtype)
        drawn = draw(width, self.options.hidden or width, generator, dtype)
        return {name: value.to(self.context.device) for name, value in drawn.items()}

    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        tasks = self._fitting(params, tasks)
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        outputs = self._outputs(params, tasks, tasks.query_x, tasks.query_mask)
        return self._task_losses(params, outputs, tasks.query_y, tasks.query_mask)

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
        w0, w1 = params["w0"], params["w1"]
        x = x.flatten(1).to(w0.dtype)
        normalize = self.options.normalize and not self._regression
        return psi(normalize_(x.clone()) if normalize else x, w0, w1)

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        if len(support) != 1:
            raise PluginError(
                f"{self.name}: export takes one task; found a batch of {len(support)}"
            )
        (head,) = self.adapt(params, support)["head"]
        scale, bias = self._calibration(params) or (1.0, None)
        return AdaptedHead(
            params["w0"],
            params["w1"],
            scale * head,
            bias,
            normalize=self._normalizes(support),
        )

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
        return {"order": self.order, **self.options.model_dump(exclude_none=True)}

    def _outputs(self, params: Params, support: TaskBatch, query_x: Tensor, mask: Tensor) -> Tensor:
        """[B, Q, o]: the adapted predictors' answers."""
        heads = self._heads(params, support)
        x = self._inputs(query_x, mask, self._normalizes(support))
        outputs = psi_products(x, params["w0"], params["w1"], heads)
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
        x = self._inputs(support.support_x, support.support_mask, self._normalizes(support))
        return psi(x.flatten(0, 1), params["w0"], params["w1"]).unflatten(0, x.shape[:2])

    def _inputs(self, x: Tensor, mask: Tensor, normalize: bool) -> Tensor:
        """[B, n, p]: what psi takes, from raw inputs [B, n, *x]; zero for padding."""
        x = x.masked_fill(_padding(x, mask), 0.0).flatten(2)
        return normalize_(x) if normalize else x

    def _normalizes(self, tasks: TaskBatch) -> bool:
        return self.options.normalize and not tasks.is_regression

    def _fitting(self, params: Params, tasks: TaskBatch) -> TaskBatch:
        """The tasks in theta's precision, once theta is found to fit them."""
        missing = [name for name in ("w0", "w1", *self.scalars) if name not in params]
        if missing:
            raise PluginError(
                f"{self.name}: theta has no {' nor '.join(missing)} (it has "
                f"{', '.join(params) or 'nothing'}); init gives fresh parameters"
            )
        w0, w1 = params["w0"], params["w1"]
        width = tasks.support_x.shape[2:].numel()
        if w0.ndim != 2 or len(w0) != width or w1.shape != w0.shape[::-1]:
            raise PluginError(
                f"{self.name}: w0 {list(w0.shape)} and w1 {list(w1.shape)} do not fit inputs of "
                f"{width} numbers; expected [{width}, h] and [h, {width}]. init gives fresh ones"
            )
        return tasks.to(dtype=w0.dtype)


def targets(y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
    """[B, n, o]: what the head regresses on, one-hot rows of class ids [B, n] or real y."""
    if y.is_floating_point():
        return y
    return (y[..., None] == torch.arange(outputs, device=y.device)).to(dtype)


def _padding(values: Tensor, mask: Tensor) -> Tensor:
    """Where the rows of values [B, n, *] are padding."""
    return (mask == 0).reshape(*mask.shape, *[1] * (values.ndim - 2))
