"""Weights by likeness alone, without a solve."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.contracts import GramOperator, TaskWeighting, Tree
from metaforge.tasks import TaskKind


class SoftmaxNearest(TaskWeighting):
    """``alpha_i(D) = exp(k(D_i, D) / t) / sum_j exp(k(D_j, D) / t)`` over D's nearest bank tasks.

    The nearest are the ``neighbours`` with the largest kernel values, and those that tie with the
    last of them; all others weigh 0. No bank task takes another's place, as the matrix of the bank
    among itself is not asked for: a crowd of tasks that are alike counts as many times as it is
    strong, where ``tasml`` shares one task's weight among them.

    shapes: v(D) [N, T] to alpha [N, T], float64; columns sum to 1, O(N T)
    source: attention over episodes, as in Vinyals et al., NeurIPS 2016, eq. 2, between tasks
    """

    sums_to_one = True
    needs_gram = True  # kernel values with the target; the bank's own matrix is never made

    def fit(
        self, gram: GramOperator | None, groups: Tensor, *, kind: TaskKind = "classification"
    ) -> Tree:
        return {}

    def weights(self, state: Tree, cross: Tensor, self_: Tensor) -> Tensor:
        count = min(self.options.neighbours, len(cross))
        last = cross.topk(count, dim=0).values[-1]
        scaled = torch.where(cross >= last, cross / self.options.temperature, -torch.inf)
        return scaled.softmax(0)
