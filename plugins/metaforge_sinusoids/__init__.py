"""Regression tasks of five families of curves, made from numbers alone: ``sinusoids``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import FINN2017
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

VUORIO2019 = """@inproceedings{vuorio2019multimodal,
  title     = {Multimodal Model-Agnostic Meta-Learning via Task-Aware Modulation},
  author    = {Vuorio, Risto and Sun, Shao-Hua and Hu, Hexiang and Lim, Joseph J.},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2019}
}"""


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="sinusoids",
            target="metaforge_sinusoids.source:Sinusoids",
            options="metaforge_sinusoids.options:SinusoidsOptions",
            summary="few-shot regression on sines, lines, parabolas, tanh and absolute values",
            cites=(FINN2017, VUORIO2019),
            groups=True,
            tasks=("regression",),
            facts="metaforge_sinusoids.options:facts",
        )
    ]
