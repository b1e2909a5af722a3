"""Multi-task weights learned from the losses' own noise."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

from metaforge import seeding
from metaforge.components import Context
from metaforge.contracts import GramOperator, Params, TaskWeighting
from metaforge.errors import PluginError
from metaforge.tasks import TaskKind
from metaforge_weightings.options import UncertaintyOptions

_PARAMETER = "log_variance"


class Uncertainty(TaskWeighting):
    """Homoscedastic uncertainty weights (Kendall, Gal and Cipolla, CVPR 2018).

    Each group g of tasks has a learned log-variance s_g; the objective of losses
    ``L_b`` of B tasks is

        classification   mean_b  exp(-s_g(b)) L_b     + s_g(b) / 2
        regression       mean_b  exp(-s_g(b)) L_b / 2 + s_g(b) / 2

    least at ``s = log 2 L`` and ``s = log L``: noisy groups count less. All s start at 0.
    The weights are the same for every target.

    ``per: group`` shares s within the source's groups; tasks without one form a group of
    their own, and where none has one, seeded k-means clusters of signatures serve. With
    ``per: task`` a bank of N tasks visited B at a time moves each s once in N / B steps:
    it stays uniform unless every task is visited many times.

    The state is a dict: ``group`` [N] long, ``log_variance`` [G], ``loss_scale``.
    ``weights`` and ``combine`` read learned parameters laid over it:
    ``weights({**state, **parameters}, cross, self_)``.

    Raises ``PluginError`` where clusters are needed and there is no gram to take
    signatures from.
    """

    target_specific = False
    sums_to_one = True
    learned = True

    def __init__(self, options: UncertaintyOptions, context: Context | None = None):
        super().__init__(options, context)
        self.needs_gram = options.per == "group"
        self.learning_rate = options.learning_rate

    def fit(
        self, gram: GramOperator | None, groups: Tensor, *, kind: TaskKind = "classification"
    ) -> dict[str, Tensor]:
        if self.options.per == "task":
            group = torch.arange(len(groups))
        elif bool((groups >= 0).any()):
            group = groups.unique(return_inverse=True)[1]
        else:
            group = self._clusters(gram)
        group = group.to(self.context.device)
        zeros = torch.zeros(int(group.max()) + 1, dtype=torch.float64, device=group.device)
        loss_scale = zeros.new_tensor(0.5 if kind == "regression" else 1.0)
        return {"group": group, _PARAMETER: zeros, "loss_scale": loss_scale}

    def parameters(self, state: dict[str, Tensor]) -> Params:
        return {_PARAMETER: state[_PARAMETER].clone()}

    def combine(
        self, parameters: Params, losses: Tensor, bank_ids: Tensor, state: dict[str, Tensor]
    ) -> Tensor:
        log_variance = parameters[_PARAMETER][state["group"][bank_ids]].to(losses.dtype)
        weighted = torch.exp(-log_variance) * losses * state["loss_scale"].to(losses.dtype)
        return (weighted + log_variance / 2).mean()

    def weights(self, state: dict[str, Tensor], cross: Tensor, self_: Tensor) -> Tensor:
        """``exp(-s)`` of each task, normalised: what the objective multiplies losses by."""
        precision = torch.exp(-state[_PARAMETER]).to(cross.dtype)[state["group"]]
        return (precision / precision.sum())[:, None].expand(cross.shape)

    def _clusters(self, gram: GramOperator | None) -> Tensor:
        if gram is None:
            raise PluginError(
                "task weighting 'uncertainty': per: group needs groups in the data, or a kernel "
                "whose signatures can be clustered; the data has none and no kernel was given"
            )
        rows = gram.signatures().cpu().numpy()
        count = min(self.options.clusters, len(np.unique(rows, axis=0)))
        random = np.random.default_rng(seeding.derive(self.context.seed, "uncertainty/clusters"))
        with warnings.catch_warnings():
            # It warns of a cluster that ran empty, which then is no group of ours.
            warnings.simplefilter("ignore", UserWarning)
            _, label = kmeans2(rows, count, minit="++", seed=random)
        return torch.from_numpy(label).long().unique(return_inverse=True)[1]
