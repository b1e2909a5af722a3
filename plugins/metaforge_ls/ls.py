"""The inner algorithm ``ls``."""

from __future__ import annotations

from torch import Tensor

from metaforge import losses
from metaforge.contracts import Params
from metaforge_ls.closed_form import ClosedForm, targets
from metaforge_ls.options import LsOptions


class Ls(ClosedForm):
    """LS Meta-Learn (Wang et al. 2020, section 4 and appendix): least squares inside and outside.

        loss = mean over queries and outputs of (psi(x) W(D) - y)^2

    with W(D) the ridge regression of ``ClosedForm`` at a fixed strength and y one-hot for
    classification: the squared error, not the cross-entropy. SP+LS is the paper's TASML.
    Predictions are scores, not logits: their greatest is the class.
    """

    name = "ls"
    gives_logits = False
    options: LsOptions

    def _ridge(self, params: Params) -> float:
        return self.options.ridge

    def query_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return squared_errors(outputs, y, mask)


def squared_errors(outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """[B]: the squared error of outputs [B, Q, o] against one-hot (or real) y, mean over the
    outputs and the queries that the mask [B, Q] keeps."""
    errors = (outputs - targets(y, outputs.shape[-1], outputs.dtype)).square().mean(-1)
    return losses.masked_mean(errors, mask)
