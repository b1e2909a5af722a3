"""MAML (Finn et al. 2017), by hand-batched formulas, by functional calls or by learn2learn."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_MAML = """@inproceedings{finn2017model,
  title = {Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks},
  author = {Finn, Chelsea and Abbeel, Pieter and Levine, Sergey},
  booktitle = {International Conference on Machine Learning},
  year = {2017}
}"""

_LEARN2LEARN = """@article{arnold2020learn2learn,
  title = {learn2learn: A Library for Meta-Learning Research},
  author = {Arnold, S{\\'e}bastien M. R. and Mahajan, Praateek and Datta, Debajyoti and
            Bunner, Ian and Zarkias, Konstantinos Saitas},
  journal = {arXiv preprint arXiv:2008.12284},
  year = {2020}
}"""


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="maml",
            target="metaforge_maml.algorithm:Maml",
            options="metaforge_maml.options:MamlOptions",
            summary="gradient steps from a learned initialisation, first or second order",
            cites=(_MAML, _LEARN2LEARN),
            check="metaforge_maml.options:missing",
        )
    ]
