"""A kernel of tasks by optimal transport between their labelled support sets."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import TaskKernel
from metaforge.errors import NumericError
from metaforge.tasks import TaskBatch
from metaforge_sliced.options import SlicedOptions

#: Squared distances below this share of the squared norms are rounding.
_EQUAL = 1e-24


class Sliced(TaskKernel):
    """``k(D, D') = exp(-SW(D, D')^2 / (2 width^2))``, SW the sliced 2-Wasserstein distance.

    A task is the set of its support samples. In classification each stands as (x, m), beside the
    mean of its class, so that what is transported keeps to its class although classes have no
    numbers; in regression as (x, y). SW averages the distances of the sets along fixed random
    directions, and in one dimension that is the distance of two quantile functions. They are the
    signature, so that the kernel is a Gaussian of points: positive semi-definite, as one of
    Sinkhorn's divergence need not be.

    signature: [n, directions x quantiles], float64
    fit: standardises the samples, draws the directions; ``width`` 1 is the median distance of
        the fitted tasks
    raises: ``NumericError`` from ``fit`` where all its tasks are the same
    source: Kolouri, Zou and Rohde, CVPR 2016, eq. 12 (the kernel); Alvarez-Melis and Fusi,
        NeurIPS 2020 (transport of labelled sets)
    """

    name = "sliced"

    def __init__(self, options: SlicedOptions, context: Context | None = None):
        super().__init__(options, context)
        self._unit = 1.0

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        z, keep = _labelled(sample)
        real = z[keep]
        self._mean, self._scale = real.mean(0), real.std(0).clamp(min=1e-12)
        shape = (z.shape[2], self.options.directions)
        directions = torch.randn(shape, generator=generator, dtype=torch.float64)
        self._directions = (directions / directions.norm(dim=0)).to(z.device)
        found = self.signature(sample)
        squared = _squared_distances(found, found)
        pairs = squared[squared > _EQUAL * found.square().sum(1).max()]
        if len(sample) > 1 and not len(pairs):
            raise NumericError(
                f"task kernel {self.name!r}: the {len(sample)} bank tasks that it is fitted on are "
                "all the same, so there is no width; look at the data, or at phi"
            )
        self._unit = float(pairs.median().sqrt()) if len(pairs) else 1.0

    def signature(self, tasks: TaskBatch) -> Tensor:
        z, keep = _labelled(tasks)
        along = ((z - self._mean) / self._scale) @ self._directions  # [n, S, L]
        ordered = torch.where(keep[..., None], along, torch.inf).sort(1).values
        levels = (torch.arange(self.options.quantiles, device=z.device) + 0.5).double()
        at = keep.sum(1)[:, None] * levels / self.options.quantiles  # [n, Q]
        rows = at.long()[..., None].expand(-1, -1, ordered.shape[2])
        return ordered.gather(1, rows).flatten(1) / rows[0].numel() ** 0.5

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        width = self.options.width * self._unit
        return _squared_distances(a, b).mul_(-0.5 / width**2).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))

    def state(self) -> dict[str, float | str]:
        return {"median_distance": self._unit}


def _labelled(tasks: TaskBatch) -> tuple[Tensor, Tensor]:
    """(x, class mean) or (x, y) of every support sample [n, S, d], and which are none [n, S]."""
    keep = tasks.support_mask > 0
    x = torch.where(keep[..., None], tasks.support_x.flatten(2).double(), 0.0)
    if tasks.is_regression:
        y = torch.where(keep[..., None], tasks.support_y.flatten(2).double(), 0.0)
        return torch.cat([x, y], 2), keep
    same = (tasks.support_y[:, :, None] == tasks.support_y[:, None]) & keep[:, None]
    weights = same.double()
    return torch.cat([x, weights @ x / weights.sum(2, keepdim=True).clamp(min=1)], 2), keep


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[n, m], pair by pair: an entry's bits depend on its two rows alone, and equal rows are at
    distance 0."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
