"""A task as the set of its samples, and the maximum mean discrepancy of two sets.

Symbols: B tasks, n samples of a task, S places for them in a signature, c numbers of a sample;
N and M signatures of p = S (c + 1) numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import DataError
from metaforge.tasks import TaskBatch
from metaforge_kernels.distances import NEAR, Space, recompute
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.samples import Standardization, in_blocks, kept, read_samples

#: Kernel values between samples that are held at a time.
_TILE = 1 << 19
#: Columns of a tile, at most.
_COLUMNS = 256
#: Stands for the logarithm's sake in the place of a weight of zero.
_NO_WEIGHT = 1e-300
#: Error of an exponent, at most, in shares of half the squared distance from the centre.
_ROUNDING = 1e-14
#: An error that does not show.
_CLEAR = 1e-10
#: Exponents below which a pair of samples adds nothing.
_SEEN = -60.0


class SampleSet(SignatureMap):
    """Signatures ``[B, S (c + 1)]`` in float64: standardised samples, then their weights.

    A sample is z, phi(x) in classification and (x, y) in regression, standardised by the bank
    tasks that the map is fitted on as for ``fourier`` and ``joint``; a weight is 1 / n, and 0 for
    the places that a task leaves empty. S is the number of places in those bank tasks. Samples
    are put in an order of their own, so that a signature does not depend on that of the task.

    Raises ``DataError`` for tasks of more samples than S, and ``PluginError`` for regression with
    ``signature: all`` (a target's queries show no labels), for ``all`` on tasks without
    queries, and for use before ``fit``.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        super().__init__(options, kernel_name)
        self._standardize: Standardization | None = None
        self._direction: Tensor | None = None
        self._places = 0

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Standardise by the sample, draw the direction that samples are ordered along."""
        parts, keep = self._parts(sample)
        self._places = keep.shape[1]
        self._standardize = Standardization.of(*(part[keep] for part in parts))
        width = sum(part.shape[-1] for part in parts)
        direction = torch.randn(width, generator=generator, dtype=torch.float64)
        self._direction = direction.to(keep.device)

    @property
    def space(self) -> Space:
        if self._standardize is None:
            raise self.unfitted("set")
        return SetSpace(self._places, self.options.width)

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self._standardize is None:
            raise self.unfitted("set")
        return in_blocks(self._rows, tasks)

    def _parts(self, tasks: TaskBatch) -> tuple[list[Tensor], Tensor]:
        return read_samples(tasks, self.options, self.kernel_name)

    def _rows(self, tasks: TaskBatch) -> Tensor:
        assert self._standardize is not None
        assert self._direction is not None
        parts, keep = self._parts(tasks)
        self._check_size(keep, tasks)
        z = kept(self._standardize(torch.cat(parts, -1)), keep)
        # summed row by row: a sample has the same key, to the bit, at whatever place it stands
        keys = torch.where(keep, (z * self._direction).sum(-1), math.inf)
        order = keys.argsort(1)[:, : self._places]
        z = z.take_along_dim(order[..., None], 1)
        weights = (keep.to(z.dtype) / keep.sum(1, keepdim=True)).gather(1, order)
        empty = self._places - order.shape[1]
        return torch.cat([F.pad(z, (0, 0, 0, empty)).flatten(1), F.pad(weights, (0, empty))], 1)

    def _check_size(self, keep: Tensor, tasks: TaskBatch) -> None:
        counts = keep.sum(1)
        over = counts > self._places
        if bool(over.any()):
            first = int(over.nonzero()[0])
            raise DataError(
                f"task kernel {self.kernel_name!r}: embedding: set is fitted on bank tasks of at "
                f"most {self._places} samples, and task {int(tasks.task_ids[first])} has "
                f"{int(counts[first])}; take a bank with as many shots, or another embedding"
            )


class SetSpace(Space):
    """Sets of weighted samples, each as its mean embedding (Gretton et al. 2012).

    With ``k(z, z') = exp(-|z - z'|^2 / (2 width^2))``, for sets A of samples z_s with weights
    w_s and B of samples z'_t with weights w'_t, each summing to 1,

        <A, B>    = sum_s sum_t w_s w'_t k(z_s, z'_t)
        d(A, B)^2 = <A, A> + <B, B> - 2 <A, B>,

    the squared maximum mean discrepancy (biased: s = t counts), which ``fourier`` estimates.
    O(N M S^2 c) operations, in tiles of bounded memory.
    """

    def __init__(self, places: int, width: float):
        self._places, self._width = places, width

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        centre = self._samples(a)[0].mean((0, 1))
        found = a.new_empty(len(a), len(b))
        pairs = self._places**2
        n_columns = max(1, min(len(b), _COLUMNS, _TILE // pairs))
        n_rows = max(1, _TILE // (pairs * n_columns))
        for j in range(0, len(b), n_columns):
            # places before sets, so that the sum over pairs runs along whole rows of memory
            right = self._scaled(b[j : j + n_columns], centre, places_first=True)
            columns = right.right().T
            for i in range(0, len(a), n_rows):
                left = self._scaled(a[i : i + n_rows], centre)
                values = _exponents(left, right, columns).exp_()
                values = values.view(-1, pairs, columns.shape[1] // self._places)
                found[i : i + n_rows, j : j + n_columns] = values.sum(1)
        return found

    def squared_norms(self, a: Tensor) -> Tensor:
        parts = []
        for some in a.split(max(1, _TILE // self._places**2)):
            z, w = self._samples(some)
            lengths = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
            kernel = (lengths / self._width).square().div(-2).exp()
            parts.append((w[:, :, None] * kernel * w[:, None]).sum((1, 2)))
        return torch.cat(parts)

    def squared_distances(self, a: Tensor, b: Tensor) -> Tensor:
        norms = self.squared_norms(a)[:, None] + self.squared_norms(b)
        distances = torch.add(norms, self.inner(a, b), alpha=-2)
        size = self._places * (self._places + a.shape[1])
        near = distances <= NEAR * norms
        return recompute(distances, near, lambda i, j: self._near(a[i], b[j]), size)

    def _samples(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Samples [N, S, c] and weights [N, S]."""
        samples, weights = a.split([a.shape[1] - self._places, self._places], 1)
        return samples.unflatten(1, (self._places, -1)), weights

    def _scaled(self, a: Tensor, centre: Tensor, places_first: bool = False) -> _Scaled:
        samples, weights = self._samples(a)
        if places_first:
            samples, weights = samples.transpose(0, 1), weights.T
        r = samples.sub(centre).mul_(1 / self._width).flatten(0, 1)
        return _Scaled(r, weights.clamp(min=_NO_WEIGHT).log().flatten())

    def _near(self, a: Tensor, b: Tensor) -> Tensor:
        """[P]: squared distances of pairs of sets that almost coincide, place by place.

        With h_s = z'_s - z_s, the difference of the mean embeddings is that of the samples,
        ``sum_s w_s (k(z_s, .) - k(z'_s, .))``, and that of the weights,
        ``sum_s (w_s - w'_s) k(z'_s, .)``. The inner products of these differences are products
        of ``exp(e) - 1`` with small exponents e, which lose no digits.
        """
        (z, w), (other, own) = self._samples(a), self._samples(b)
        z, h, change = z / self._width, (other - z) / self._width, w - own
        gram = z @ z.mT
        half = gram.diagonal(dim1=1, dim2=2) / 2
        exponent = gram - half[:, :, None] - half[:, None]
        kernel = exponent.exp()  # k(z_s, z_t)
        along = z @ h.mT
        # k(z_s, z'_t) = k(z_s, z_t) exp(e_st)
        e = along - along.diagonal(dim1=1, dim2=2)[:, None] - h.square().sum(-1)[:, None] / 2
        both, cross = e + e.mT, h @ h.mT  # k(z'_s, z'_t) = k(z_s, z_t) exp(both + cross)
        moved = kernel * (e.expm1() * e.mT.expm1() + both.exp() * cross.expm1())
        mixed = -kernel * e.exp() * (e.mT + cross).expm1()
        # less 1, which adds nothing as both sets' weights sum to 1, and leaves no rounding
        still = (exponent + both + cross).expm1()
        total = (
            w[:, :, None] * moved * w[:, None]
            + 2 * w[:, :, None] * mixed * change[:, None]
            + change[:, :, None] * still * change[:, None]
        )
        return total.sum((1, 2)).clamp(min=0)


class _Scaled(NamedTuple):
    """Samples of some sets in one list: r [n, c] in widths, and the logarithms v of weights."""

    r: Tensor
    v: Tensor

    def half(self) -> Tensor:
        return self.r.square().sum(1) / 2

    def right(self) -> Tensor:
        """[n, c + 2]."""
        u = self.v - self.half()
        return torch.cat([self.r, torch.stack([torch.ones_like(u), u], 1)], 1)


def _exponents(left: _Scaled, right: _Scaled, columns: Tensor) -> Tensor:
    """[n, m]: ``log(w w' k(z, z')) = v + v' - |r - r'|^2 / 2``; ``columns = right.right().T``.

    One product gives them whole, with an error that grows with the samples' distance from their
    centre. Where that shows, those that count are computed again by subtraction.
    """
    half = left.half()
    u = left.v - half
    values = torch.cat([left.r, torch.stack([u, torch.ones_like(u)], 1)], 1) @ columns
    error = _ROUNDING * float(half.amax())
    if error < _CLEAR:
        return values

    def again(s: Tensor, t: Tensor) -> Tensor:
        return left.v[s] + right.v[t] - (left.r[s] - right.r[t]).square().sum(1) / 2

    return recompute(values, values > _SEEN - error, again, left.r.shape[1])
