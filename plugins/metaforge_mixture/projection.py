"""One source's way to the common width, fitted on its own training tasks.

Symbols: n samples, p their numbers, w the common width.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import DataError
from metaforge.linalg import generalized_eigenvectors
from metaforge.tasks import TaskBatch, TaskSource, View
from metaforge_mixture.options import MixtureOptions

#: Training tasks that a projection is fitted on, and how many are drawn at a time.
FIT_TASKS, _BLOCK = 512, 64
#: Columns of a sample at most: the fit takes the eigenvectors of a matrix of this size.
_WIDEST = 4096
#: Ridge on the within-class scatter, relative to its mean eigenvalue.
_RIDGE = 1e-3
#: The within-class scatter at least, relative to the total: beneath is rounding of float32.
_LEAST_WITHIN = 1e-14


@dataclass(frozen=True, eq=False)
class Projection:
    """``x -> normalised (x - shift) basis``: x [..., p] to [..., w].

    shift  [p] float64, zeros unless the source is centred
    basis  [p, w] float64
    """

    shift: Tensor
    basis: Tensor
    normalize: bool

    def __call__(self, x: Tensor) -> Tensor:
        basis, shift = self.basis.to(x), self.shift.to(x)
        projected = (x - shift) @ basis
        return F.normalize(projected, dim=-1) if self.normalize else projected

    @property
    def fingerprint(self) -> str:
        """Hex digest of the numbers."""
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self.shift, self.basis):
            digest.update(f"{tuple(tensor.shape)} ".encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        digest.update(repr(self.normalize).encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Moments:
    """What a fit needs of the samples of training tasks, in float64.

    mean    [p]
    total   [p, p] covariance of the samples
    within  [p, p] covariance about the means of their classes within their tasks
    """

    mean: Tensor
    total: Tensor
    within: Tensor


def fit(source: TaskSource, options: MixtureOptions, name: str) -> Projection:
    """The projection of a source's features, fitted on its first training tasks.

    ``pca``: eigenvectors of the total covariance with the w largest eigenvalues.
    ``discriminant``: of ``within^-1 total`` (Fisher), the within-class covariance with a small
    ridge. Signs are such that each vector's largest entry is positive. Raises ``DataError``
    for too few columns or directions, for too many columns, and under ``discriminant`` for
    classes whose samples are all alike.
    """
    found = moments(source, name)
    columns = len(found.mean)
    if columns < options.width:
        raise DataError(
            f"mixture: source {name!r} has samples of {columns} numbers, fewer than width "
            f"{options.width}; set data.width to {columns} or less"
        )
    basis = _basis(found, options, name)
    shift = found.mean if options.centre else torch.zeros_like(found.mean)
    return Projection(shift, basis, options.normalize == "l2")


def moments(source: TaskSource, name: str) -> Moments:
    """Of the support and query samples of the source's training tasks."""
    view: View = "features" if source.has_features else "input"
    sums: list[Tensor] = []
    for start in range(0, FIT_TASKS, _BLOCK):
        x, classes = _samples(source.batch("train", range(start, start + _BLOCK), view), name)
        centred = x - classes @ (classes.T @ x / classes.sum(0)[:, None])
        found = [x.new_tensor(len(x)), x.sum(0), x.T @ x, centred.T @ centred]
        sums = found if not sums else [a + b for a, b in zip(sums, found, strict=True)]
    mean, square, within = (part / sums[0] for part in sums[1:])
    return Moments(mean, square - torch.outer(mean, mean), within)


def _samples(tasks: TaskBatch, name: str) -> tuple[Tensor, Tensor]:
    """Samples [n, p] in float64, and which class of which task each is of, one-hot [n, B o]."""
    assert tasks.query_x is not None
    x = torch.cat([tasks.support_x, tasks.query_x], 1).flatten(2)
    if x.shape[2] > _WIDEST:
        raise DataError(
            f"mixture: source {name!r} has samples of {x.shape[2]:,} numbers; a projection is "
            f"fitted on {_WIDEST:,} at most: give the source features"
        )
    assert tasks.query_y is not None
    y = torch.cat([tasks.support_y, tasks.query_y], 1)
    kept = torch.cat([tasks.support_mask, tasks.query_mask], 1) > 0
    number = y + tasks.outputs * torch.arange(len(tasks), device=y.device)[:, None]
    one_hot = F.one_hot(number[kept], len(tasks) * tasks.outputs)
    return x[kept].double(), one_hot[:, one_hot.any(0)].double()


def _basis(found: Moments, options: MixtureOptions, name: str) -> Tensor:
    total, within, width = found.total, found.within, options.width
    if options.projection == "pca":
        values, vectors = (part.flip(-1) for part in torch.linalg.eigh(total))
    else:
        if within.trace() <= _LEAST_WITHIN * total.trace().abs():
            raise DataError(
                f"mixture: the samples of source {name!r} do not vary within their classes, which "
                "projection: discriminant measures; set data.projection: pca"
            )
        ridge = _RIDGE * within.diagonal().mean() * torch.eye(len(within)).to(within)
        values, vectors = generalized_eigenvectors(total, within + ridge)
    values, vectors = values[:width], vectors[:, :width]
    varying = int((values > 1e-10 * values[0]).sum()) if float(values[0]) > 0 else 0
    if varying < width:
        raise DataError(
            f"mixture: the samples of source {name!r} vary in {varying} directions, fewer than "
            f"width {width}; set data.width to {max(varying, 1)} or less"
        )
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return vectors * largest.sign()
