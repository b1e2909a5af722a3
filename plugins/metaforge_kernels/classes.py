"""A task as the configuration of its classes.

Symbols: B tasks, n samples of a task, q the width of phi(x), C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import DataError, PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.samples import Standardization, class_means, in_blocks, read_labelled

#: Eigenvalues below this share of a task's largest are rounding.
_RANK = 1e-12


class Classes(SignatureMap):
    """Signatures ``[B, 4q + C - 1 + C (C - 1) / 2]`` in float64 of classification tasks.

    With mu_c the mean feature of class c within the task:

    ==========  =============  ===========================================================
    means       3q             mean, mean absolute value and mean square of mu_c over c
    within      q              pooled variance of samples about their class's mean; 0 where
                               no class has two samples
    spectrum    C - 1          eigenvalues of the covariance of the mu_c, falling
    distances   C (C - 1) / 2  |mu_c - mu_d| of pairs of classes, falling
    ==========  =============  ===========================================================

    None depends on the numbering of the classes. Each part is standardised by the bank tasks that
    it is fitted on and divided by the root of its number of columns, so that parts count alike; a
    class without samples is left out, its eigenvalue and distances are 0.

    Raises ``PluginError`` for regression, for ``signature: all`` (a target's queries show no
    labels) and for use before ``fit``, ``DataError`` for tasks of more classes than fitted on.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        super().__init__(options, kernel_name)
        self._classes = 0
        self._standardize: Standardization | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Standardise by the sample; the generator is not used."""
        if sample.is_regression:
            raise PluginError(
                f"task kernel {self.kernel_name!r}: embedding: classes is for classification, "
                "and these are regression tasks; take embedding: joint or contrast"
            )
        self._classes = sample.outputs
        self._standardize = Standardization.of(*self._split(in_blocks(self._describe, sample)))

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self._standardize is None:
            raise self.unfitted("classes")
        if tasks.outputs > self._classes:
            raise DataError(
                f"task kernel {self.kernel_name!r}: embedding: classes is fitted on bank tasks of "
                f"{self._classes} classes, and these have {tasks.outputs}; take a bank of as many "
                "ways, or another embedding"
            )
        standardize = self._standardize
        return in_blocks(lambda some: standardize(self._describe(some)), tasks)

    def _split(self, rows: Tensor) -> tuple[Tensor, ...]:
        pairs = self._classes * (self._classes - 1) // 2
        width = (rows.shape[1] - pairs - self._classes + 1) // 4
        return rows.split([3 * width, width, self._classes - 1, pairs], 1)

    def _describe(self, tasks: TaskBatch) -> Tensor:
        """The four parts side by side, as they are."""
        x, member, _ = read_labelled(tasks, self.options, self.kernel_name)
        member = F.pad(member, (0, self._classes - member.shape[-1]))
        means, present = class_means(x, member), member.any(1)
        return torch.cat(
            [
                *_over_classes(means, present),
                _within(x, member, means),
                _spectrum(means, present),
                _distances(means, present),
            ],
            -1,
        )


def _over_classes(means: Tensor, present: Tensor) -> list[Tensor]:
    """Three times [B, q]; an absent class's mean is zero, so that sums leave it out."""
    count = present.sum(1, keepdim=True)
    return [some.sum(1) / count for some in (means, means.abs(), means.square())]


def _within(x: Tensor, member: Tensor, means: Tensor) -> Tensor:
    """[B, q], with n less the number of classes in the divisor."""
    freedom = member.sum((1, 2)) - member.any(1).sum(1)
    if not bool(freedom.any()):  # tasks of one shot
        return x.new_zeros(len(x), x.shape[-1])
    squares = torch.baddbmm(x, member, means, alpha=-1).square_().sum(1)
    return squares / freedom.clamp(min=1)[:, None]


def _spectrum(means: Tensor, present: Tensor) -> Tensor:
    """[B, C - 1], by the Gram matrix [C, C] of the centred means: as many eigenvalues. NaN where
    it is not finite."""
    count = present.sum(1)[:, None, None]
    centred = (means - means.sum(1, keepdim=True) / count) * present[..., None]
    gram = centred @ centred.mT / count
    broken = ~torch.isfinite(gram).flatten(1).all(1)  # of which LAPACK would name no task
    values = torch.linalg.eigvalsh(gram.masked_fill(broken[:, None, None], 0.0)).flip(1)
    kept = torch.where(values > _RANK * values[:, :1], values, 0.0)[:, :-1]
    return kept.masked_fill(broken[:, None], torch.nan)


def _distances(means: Tensor, present: Tensor) -> Tensor:
    """[B, C (C - 1) / 2]; 0 for a pair with an absent class."""
    c, d = torch.triu_indices(means.shape[1], means.shape[1], offset=1, device=means.device)
    # by subtraction: equal classes are at distance 0
    lengths = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")[:, c, d]
    return (lengths * (present[:, c] & present[:, d])).sort(1, descending=True).values
