"""The linear kernel on task signatures."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from metaforge.components import Context
from metaforge_kernels.options import LinearOptions
from metaforge_kernels.signatures import SignatureKernel


class Linear(SignatureKernel):
    """``k(D, D') = <s(D), s(D')> + c`` (paper, appendix C).

    On vectors of p numbers its rank is at most p + 1, with features ``[s, sqrt(c)]``, so that
    weightings can solve in feature space and never need the N x N matrix. On sets
    (``embedding: set``) the inner product is that of their mean embeddings, ``mean k(z, z')``
    over all pairs of samples, and there are no such features.
    """

    name = "linear"

    def __init__(self, options: LinearOptions, context: Context | None = None):
        super().__init__(options, context)
        self.finite_rank = options.embedding != "set"

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return self.space.inner(a, b).add_(self.options.c)

    def diag(self, a: Tensor) -> Tensor:
        return self.space.squared_norms(a) + self.options.c

    def features(self, signatures: Tensor) -> Tensor | None:
        found = self.space.features(signatures)
        return None if found is None else F.pad(found, (0, 1), value=math.sqrt(self.options.c))
