"""The linear kernel on task signatures."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from metaforge_kernels.signatures import SignatureKernel


class Linear(SignatureKernel):
    """``k(D, D') = <s(D), s(D')> + c`` (paper, appendix C).

    Its rank is at most p + 1, with features ``[s, sqrt(c)]``, so that weightings can
    solve in feature space and never need the N x N matrix.
    """

    name = "linear"

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b.T + self.options.c

    def diag(self, a: Tensor) -> Tensor:
        return a.square().sum(1) + self.options.c

    def features(self, signatures: Tensor) -> Tensor:
        return F.pad(signatures, (0, 1), value=math.sqrt(self.options.c))
