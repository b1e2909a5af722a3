"""The inner algorithm ``r2d2``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metaforge import losses
from metaforge.contracts import Params
from metaforge.tasks import TaskShape
from metaforge_ls.closed_form import ClosedForm
from metaforge_ls.options import R2d2Options


class R2d2(ClosedForm):
    """R2-D2 (Bertinetto et al. 2019, section 3.1): least squares inside, cross-entropy outside.

        logits = scale psi(x) W(D) + bias,   scale = exp(log_scale),   ridge = exp(log_ridge)

    with W(D) the ridge regression of ``ClosedForm``. Scale, bias and ridge strength are
    meta-learned beside the feature map; scale and ridge by their logarithms, which keeps them
    positive and makes a step of the optimiser a relative one. On regression tasks the outer
    loss is the mean squared error.

    The bias is one number for all outputs, so the softmax does not see it: on classification
    its gradient is zero and it stays as it is. Regression learns it.
    """

    name = "r2d2"
    scalars = ("log_scale", "bias", "log_ridge")
    options: R2d2Options

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        params = super().init(shape, generator)
        scale = self.options.scale or (1.0 if shape.kind == "regression" else 10.0)
        start = (math.log(scale), 0.0, math.log(self.options.ridge))
        like = next(iter(params.values()))
        scalars = {k: like.new_tensor(v) for k, v in zip(self.scalars, start, strict=True)}
        return params | scalars

    def _ridge(self, params: Params) -> Tensor:
        return params["log_ridge"].exp()

    def _calibration(self, params: Params) -> tuple[Tensor, Tensor]:
        return params["log_scale"].exp(), params["bias"]

    def query_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        if not y.is_floating_point():
            # makes the bias's gradient zero exactly: Adam would follow rounding noise
            outputs = outputs - params["bias"]
        return losses.task_losses(outputs, y, mask)
