"""Phase 2: how much each bank task counts for a target (paper, eq. 5 and section 4.1).

Symbols: N bank tasks, T targets, M kept tasks a target, p the width of a signature.
Scores are float64 whatever the run's precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from metaforge.contracts import TARGET_BLOCK, TaskWeighting, Tree
from metaforge.errors import NumericError, PluginError
from metaforge.gram import KernelGram, bank_gram, signature
from metaforge.tasks import TaskBatch, TaskSource, unpadded

__all__ = [
    "Agreement",
    "KernelGram",
    "Scorer",
    "TargetScores",
    "agreement",
    "bank_gram",
    "effective_sample_size",
    "keep",
    "raw_statistics",
]

#: Kept signed weights whose sum is a smaller share of their absolute sum are refused:
#: normalised, their absolute values would sum to more than its inverse.
LEAST_SUM = 0.1
#: Targets of a block.
_TARGETS = TARGET_BLOCK


@dataclass(frozen=True)
class Scorer:
    """A weighting fitted to a bank: alphas for any number of targets.

    ``gram`` is None for a weighting that needs none. For a learned weighting, lay its
    parameters over the state: ``state={**state, **parameters}``.
    """

    weighting: TaskWeighting
    state: Tree
    gram: KernelGram | None
    n_tasks: int

    def alphas(self, targets: TaskBatch) -> Tensor:
        """[N, T] float64: alpha(D) of targets in the view of the bank's phi, a column each.

        A column has the same bits whatever other targets are scored with it, where the kernel
        and the weighting see to their own. O(N T) numbers and N T values of the kernel, beside
        what the weighting does with them.
        """
        if self.gram is None or not self.weighting.target_specific:
            nothing = torch.zeros((), dtype=torch.float64, device=targets.support_x.device)
            cross, own = nothing.expand(self.n_tasks, len(targets)), nothing.expand(len(targets))
            return self.weighting.weights(self.state, cross, own)
        kernel, phi = self.gram.kernel, self.gram.phi
        bank, ids = self.gram.signatures(), targets.task_ids
        each = [signature(unpadded(targets[[t]]), kernel, phi) for t in range(len(ids))]
        found = torch.cat(each)
        numbers, places = ids // _TARGETS, ids % _TARGETS
        alpha = bank.new_empty(self.n_tasks, len(ids))
        members = [numbers == number for number in numbers.unique()]
        for first in range(0, len(members), self.weighting.blocks):
            some = members[first : first + self.weighting.blocks]
            blocks = [_block(found[mine], places[mine]) for mine in some]
            cross = torch.cat([kernel.gram(bank, block) for block in blocks], 1)
            own = torch.cat([kernel.diag(block) for block in blocks])
            scores = self.weighting.weights(self.state, cross, own)
            _refuse_other_weights(self.weighting, scores, cross)
            for mine, part in zip(some, scores.split(_TARGETS, 1), strict=True):
                alpha[:, mine] = part[:, places[mine]]
        return alpha

    def score(
        self,
        source: TaskSource,
        split: str,
        ids: Sequence[int],
        top_m: int,
        negative: Literal["clip", "keep"] = "clip",
    ) -> TargetScores:
        """The kept bank tasks of the targets ``ids``; raises what ``keep`` raises.

        Targets are scored in blocks, so that [N, T] is never held whole; what is kept of each
        is computed from its own alphas alone, so that its bits do not depend on the others.
        """
        parts, view = [], self.gram.phi.view if self.gram else "features"
        together = _TARGETS * self.weighting.blocks
        with self.weighting.context.progress("scores of targets", len(ids)) as advance:
            for _, group in groupby(ids, lambda target_id: target_id // together):
                block = list(group)
                alpha = self.alphas(source.batch(split, block, view))
                for target_id, row in zip(block, alpha.T.contiguous().split(1), strict=True):
                    own = keep(row.T, top_m, negative, [target_id])
                    parts.append((*own, raw_statistics(row.T, top_m)))
                advance(len(block))
        return TargetScores(*(torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True)))


def _refuse_other_weights(weighting: TaskWeighting, scores: Tensor, cross: Tensor) -> None:
    """``PluginError`` for what ``weights`` may not give."""
    if scores.shape != cross.shape or scores.dtype != torch.float64:
        raise PluginError(
            f"{type(weighting).__qualname__}.weights gave {list(scores.shape)} {scores.dtype}, "
            f"expected {list(cross.shape)} torch.float64: [N, T] of cross"
        )


def _block(signatures: Tensor, places: Tensor) -> Tensor:
    """[64, p]: signatures at their places of a block; one stands in for those that lack."""
    block = signatures[:1].repeat(_TARGETS, 1)
    block[places] = signatures
    return block


def keep(
    alpha: Tensor,
    top_m: int,
    negative: Literal["clip", "keep"] = "clip",
    target_ids: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The top M signed values of alpha [N, T] for each target, normalised to sum to 1.

    Returns ids [T, M] (long, by falling alpha, ties by rising id) and weights [T, M].
    ``top_m >= N`` keeps all. ``negative: clip`` sets negative kept values to 0;
    ``keep`` leaves them. ``target_ids`` name the targets in messages.

    Raises ``NumericError`` naming the target where alpha is not finite, where no kept
    value is positive (``clip``), or where the kept values nearly cancel (``keep``: a sum
    below 0.1 of the absolute sum): in neither case is there a normalisation that means
    anything.
    """
    _check_finite(alpha, target_ids)
    values, ids = torch.sort(alpha.T, dim=1, descending=True, stable=True)
    values, ids = values[:, :top_m], ids[:, :top_m]
    if negative == "clip":
        values = values.clamp(min=0)
    total = values.sum(1)
    _check_sum(total, values.abs().sum(1), alpha, negative, target_ids)
    return ids, values / total[:, None]


def _check_finite(alpha: Tensor, target_ids: Sequence[int] | None) -> None:
    broken = ~torch.isfinite(alpha).all(0)
    if bool(broken.any()):
        raise NumericError(
            f"{_first(broken, target_ids)}: its task weights are not finite; "
            "look at the weighting's options (of tasml, a larger lambda) and the kernel's bandwidth"
        )


def _check_sum(
    total: Tensor,
    absolute: Tensor,
    alpha: Tensor,
    negative: str,
    target_ids: Sequence[int] | None,
) -> None:
    lost = total <= (0.0 if negative == "clip" else LEAST_SUM * absolute)
    if not bool(lost.any()):
        return
    target = int(lost.nonzero()[0])
    if negative == "clip":
        reason = (
            "none of its task weights is positive "
            f"(the largest is {float(alpha[:, target].max()):.3g}): it resembles no bank task; "
            "widen the kernel (bandwidth: median)"
        )
    else:
        reason = (
            f"its kept task weights sum to {float(total[target]):.3g} and their absolute values to "
            f"{float(absolute[target]):.3g}, too close to cancelling for a weighted loss; take "
            "condition.negative: clip, a smaller condition.top_m"
        )
    raise NumericError(
        f"{_first(lost, target_ids)}: {reason}; or take another weighting (of tasml, a larger "
        "lambda)"
    )


def _first(marked: Tensor, target_ids: Sequence[int] | None) -> str:
    """The first marked target, in words."""
    position = int(marked.nonzero()[0])
    return f"target {target_ids[position] if target_ids is not None else position}"


#: Columns of ``raw_statistics``, in order.
RAW_STATISTICS = (
    *("alpha_min", "alpha_max", "alpha_sum", "alpha_negative"),
    *("alpha_norm", "alpha_spread"),
)


def raw_statistics(alpha: Tensor, top_m: int) -> Tensor:
    """[T, 6]: least, greatest, sum, share of negatives and length of each target's N raw weights,
    and how far the greatest is above the first that is not kept (of all kept, above the least)."""
    least, most = alpha.min(0).values, alpha.max(0).values
    negative = (alpha < 0).to(alpha.dtype).mean(0)
    left_out = alpha.kthvalue(len(alpha) - top_m, 0).values if top_m < len(alpha) else least
    length = torch.linalg.vector_norm(alpha, dim=0)
    return torch.stack([least, most, alpha.sum(0), negative, length, most - left_out], 1)


@dataclass(frozen=True, eq=False)
class Agreement:
    """How near T targets' scores are to exact ones.

    error    [T]: ``|other - exact| / |exact|`` of a target's N scores
    overlap  [T]: share of its top M tasks that the two have in common
    """

    error: Tensor
    overlap: Tensor


def agreement(exact: Tensor, other: Tensor, top_m: int) -> Agreement:
    """Of alphas [N, T] with alphas [N, T]; ``top_m`` as ``keep`` takes it.

    Raises what ``keep`` raises where a target has no top M.
    """
    error = (other - exact).norm(dim=0) / exact.norm(dim=0)
    kept = [keep(alpha, top_m)[0] for alpha in (exact, other)]
    shared = [torch.isin(*pair).double().mean() for pair in zip(*kept, strict=True)]
    return Agreement(error, torch.stack(shared))


def effective_sample_size(weights: np.ndarray) -> float:
    """``(sum |w|)^2 / sum w^2`` (Kish): how many equal weights would be worth as much."""
    return float(np.abs(weights).sum() ** 2 / np.square(weights).sum())


def _share(weights: np.ndarray, some: np.ndarray) -> float:
    """Of some weights, in the absolute sum of all."""
    size = np.abs(weights)
    return float(size[some].sum() / size.sum())


@dataclass(frozen=True, eq=False)
class TargetScores:
    """What was recalled for T targets.

    ids      [T, M] int64, bank tasks by falling alpha
    weights  [T, M] float64, each row sums to 1
    raw      [T, 6] float64, ``RAW_STATISTICS`` of all N alphas
    """

    ids: np.ndarray
    weights: np.ndarray
    raw: np.ndarray

    def kept(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and weights of one target's kept bank tasks."""
        return self.ids[position], self.weights[position]

    def statistics(
        self, position: int, group: int, bank_groups: np.ndarray
    ) -> dict[str, float | None]:
        """One target's record: the raw alphas, the kept weights' effective sample size, and
        the share of tasks that are of the target's own group among the kept ones, in their
        weight, and in the whole bank, which is what chance would recall (None without groups)."""
        ids, weights = self.kept(position)
        own = bank_groups == group
        return {
            **dict(zip(RAW_STATISTICS, map(float, self.raw[position]), strict=True)),
            "effective_sample_size": effective_sample_size(weights),
            "own_group": float(own[ids].mean()) if group >= 0 else None,
            "own_group_weight": _share(weights, own[ids]) if group >= 0 else None,
            "own_group_bank": float(own.mean()) if group >= 0 else None,
        }
