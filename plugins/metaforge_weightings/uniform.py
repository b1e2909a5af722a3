"""Equal weights: conditioning without conditions."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.contracts import GramOperator, TaskWeighting
from metaforge.tasks import TaskKind


class Uniform(TaskWeighting):
    """``alpha_i(D) = 1 / N``: unconditional meta-learning (paper, remark 1, normalised)."""

    needs_gram = False
    target_specific = False
    sums_to_one = True

    def fit(
        self, gram: GramOperator | None, groups: Tensor, *, kind: TaskKind = "classification"
    ) -> int:
        return len(groups)

    def weights(self, state: int, cross: Tensor, self_: Tensor) -> Tensor:
        return torch.full_like(cross, 1 / state)
