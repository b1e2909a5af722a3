"""A learned signature: what tells bank tasks apart, in units of what few samples blur.

Symbols: B tasks, p the width of the signature beneath.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from metaforge.errors import PluginError
from metaforge.linalg import generalized_eigenvectors
from metaforge.tasks import TaskBatch
from metaforge_kernels.embeddings import Embedding, Kind, unfitted
from metaforge_kernels.options import SignatureOptions

#: Ridge on the covariance of the noise, relative to its mean eigenvalue: directions in which
#: bank tasks hardly differ are not measured by almost nothing.
_RIDGE = 1e-2


class Contrast:
    """Signatures ``[B, p]`` in float64, learned from bank tasks without knowing their groups.

    Beneath it is m(D), ``moments`` in classification and ``joint`` in regression. A bank task
    gives it twice, m_S from its support and m_Q from its queries: the same task, other samples.
    With W the covariance of m_S - m_Q (what few samples blur) and T that of m_S,

        T v_i = lambda_i W v_i,   v_i^T W v_i = 1
        s_i(D) = max(0, 1 - 1 / lambda_i) v_i^T (m(D) - mean)

    Were m_S the task's own value plus independent normal noise of covariance W, s would be the
    task's expected value given m_S, in units of the noise: the directions that tell tasks apart
    (Fisher's, each bank task its own class) count in full, those of noise alone not at all. It
    is probabilistic linear discriminant analysis (Ioffe 2006) with tasks in place of persons.

    Raises ``PluginError`` if the tasks that it is fitted on have no queries, and for use before.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str):
        self.options, self.kernel_name = options, kernel_name
        self.beneath: Embedding | None = None
        self._map: tuple[Tensor, Tensor] | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Fit what is beneath, then the directions."""
        if sample.query_x is None:
            raise PluginError(
                f"task kernel {self.kernel_name!r}: embedding: contrast is fitted on the support "
                "and the queries of bank tasks, and these have no queries"
            )
        kind: Kind = "joint" if sample.is_regression else "moments"
        self.beneath = Embedding(self.options, self.kernel_name, kind)
        self.beneath.fit(sample, generator)
        support, queries = self.beneath(sample), self.beneath(_queries_as_support(sample))
        noise = _covariance(support - queries)
        noise.diagonal().add_(_RIDGE * noise.diagonal().mean())
        lambdas, vectors = generalized_eigenvectors(_covariance(support), noise)
        self._map = support.mean(0), vectors * (1 - 1 / lambdas.clamp(min=1.0))

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self.beneath is None or self._map is None:
            raise unfitted(self.kernel_name, "contrast")
        mean, directions = self._map
        return (self.beneath(tasks) - mean) @ directions


def _queries_as_support(tasks: TaskBatch) -> TaskBatch:
    assert tasks.query_x is not None
    assert tasks.query_y is not None
    return replace(
        tasks, support_x=tasks.query_x, support_y=tasks.query_y, support_mask=tasks.query_mask
    )


def _covariance(rows: Tensor) -> Tensor:
    """[p, p] of rows [B, p]."""
    centred = rows - rows.mean(0)
    return centred.T @ centred / len(rows)
