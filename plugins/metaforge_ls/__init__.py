"""Closed-form heads on a learned feature map: ``ls`` (LS Meta-Learn) and ``r2d2``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import WANG2020
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_R2D2 = """@inproceedings{bertinetto2019meta,
  title = {Meta-Learning with Differentiable Closed-Form Solvers},
  author = {Bertinetto, Luca and Henriques, Jo{\\~a}o F. and Torr, Philip H. S. and
            Vedaldi, Andrea},
  booktitle = {International Conference on Learning Representations},
  year = {2019}
}"""


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="ls",
            target="metaforge_ls.ls:Ls",
            options="metaforge_ls.options:LsOptions",
            summary="ridge regression on learned features, squared error outside (LS Meta-Learn)",
            cites=(WANG2020,),
            tasks=("classification", "regression"),
            mixed_precision=True,
        ),
        Component(
            kind="inner_algorithm",
            name="r2d2",
            target="metaforge_ls.r2d2:R2d2",
            options="metaforge_ls.options:R2d2Options",
            summary="ridge regression on learned features, cross-entropy outside; ridge learned",
            cites=(_R2D2,),
            tasks=("classification", "regression"),
            mixed_precision=True,
        ),
    ]
