"""A learned signature: what tells bank tasks apart, in units of what few samples blur.

Symbols: B tasks, p the width of what is beneath, r that of the signature.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from metaforge import memory
from metaforge.errors import NumericError
from metaforge.gram import refuse_broken
from metaforge.tasks import TaskBatch
from metaforge_kernels.classes import Classes
from metaforge_kernels.embeddings import Embedding
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.samples import in_blocks, queries_as_support, read_inputs

#: Ridge on the covariance of the noise, relative to its mean eigenvalue: directions in which
#: bank tasks hardly differ are not measured by almost nothing.
_RIDGE = 1e-2
#: And relative to the tasks' own, should a task's samples be all alike.
_LEAST = 1e-12
#: Mean variance of tasks that is rounding: what is beneath is standardised.
_EQUAL = 1e-20


class NothingApart(NumericError):
    """The bank tasks show nothing that tells them apart."""


class Contrast(SignatureMap):
    """Signatures ``[B, r]`` in float64, learned from bank tasks without knowing their groups.

    Beneath it is m(D): ``moments`` and ``classes`` side by side, in regression ``joint``. A bank
    task gives it twice, m_S from its support and m_Q from its queries: the same task, other
    samples. With W the covariance of m_S - m_Q (what few samples blur) and T that of m_S,

        T v_i = lambda_i W v_i,   v_i^T W v_i = 1
        s_i(D) = (1 - 1 / lambda_i) v_i^T (m(D) - mean),   for the r of lambda_i above 1

    Were m_S the task's own value plus independent normal noise of covariance W, s would be the
    task's expected value given m_S, in units of the noise: the directions that tell tasks apart
    (Fisher's, each bank task its own class) count in full, those of noise alone not at all. It
    is probabilistic linear discriminant analysis (Ioffe 2006) with tasks in place of persons.

    Raises ``PluginError`` if the tasks that it is fitted on have no queries, and for use before;
    ``NothingApart`` if no lambda_i is above 1; ``DataError`` if W does not fit in memory, and what
    ``classes`` raises.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        super().__init__(options, kernel_name)
        self._beneath: list[SignatureMap] = []
        self._map: tuple[Tensor, Tensor] | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Fit what is beneath, then the directions."""
        queries = queries_as_support(sample, self.kernel_name, "contrast")
        # what is beneath gets its samples normalised: they are read once for all of it
        options, name = self.options.model_copy(update={"normalize": False}), self.kernel_name
        if sample.is_regression:
            self._beneath = [Embedding(options, name, "joint")]
        else:
            self._beneath = [Embedding(options, name, "moments"), Classes(options, name)]
        read = self._read(sample)
        for beneath in self._beneath:
            beneath.fit(read, generator)
        support, other = self._describe(sample), self._describe(queries)
        for rows in (support, other):
            refuse_broken(rows, sample, self.kernel_name)
        self._require_memory(support)
        lambdas, vectors = _directions(support, other)
        above = lambdas > 1
        if not bool(above.any()):
            raise NothingApart(
                f"task kernel {self.kernel_name!r}: embedding: contrast finds nothing that tells "
                f"the {len(sample)} bank tasks looked at apart, beyond what their few samples "
                "blur; take more bank tasks, another embedding, or weighting: {use: uniform}"
            )
        self._map = support.mean(0), vectors[:, above] * (1 - 1 / lambdas[above])

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self._map is None:
            raise self.unfitted("contrast")
        mean, directions = self._map
        return in_blocks(lambda some: self._describe(some).sub_(mean) @ directions, tasks)

    def _describe(self, tasks: TaskBatch) -> Tensor:
        read = self._read(tasks)
        return torch.cat([beneath(read) for beneath in self._beneath], 1)

    def _read(self, tasks: TaskBatch) -> TaskBatch:
        x, _ = read_inputs(tasks, self.options, self.kernel_name)
        return replace(tasks, support_x=x)

    def _require_memory(self, support: Tensor) -> None:
        width = support.shape[1]
        memory.require(
            8 * 3 * width**2,
            support.device,
            f"embedding: contrast of task kernel {self.kernel_name!r} on {width} numbers a task",
            "take embedding: moments, or features of fewer numbers",
        )


def _directions(support: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """lambda_i, falling, and v_i in columns, as many as T can have.

    With ``W = L L^T`` and ``T = S S^T`` they come of the singular values and left vectors of
    ``L^-1 S``: of what is [p, p], W alone is decomposed.
    """
    centred = support - support.mean(0)
    noise, size = _covariance(support - queries), centred.square().mean()
    if size <= _EQUAL:
        return support.new_zeros(1), support.new_zeros(support.shape[1], 1)
    noise.diagonal().add_(_RIDGE * noise.diagonal().mean() + _LEAST * size)
    lower = torch.linalg.cholesky(noise)
    spread = centred.T / math.sqrt(len(support))
    whitened = torch.linalg.solve_triangular(lower, spread, upper=False)
    left, values, _ = torch.linalg.svd(whitened, full_matrices=False)
    return values.square(), torch.linalg.solve_triangular(lower.T, left, upper=True)


def _covariance(rows: Tensor) -> Tensor:
    """[p, p] of rows [B, p]."""
    centred = rows - rows.mean(0)
    return centred.T @ centred / len(rows)
