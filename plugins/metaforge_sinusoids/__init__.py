"""Regression tasks of five families of curves, made from numbers alone: ``sinusoids``.

This module holds the options and imports no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt

from metaforge.components import Component, Options
from metaforge.hookspecs import hookimpl

Family = Literal["sine", "line", "quadratic", "tanh", "absolute"]
FAMILIES: tuple[Family, ...] = get_args(Family)


def _distinct(families: tuple[Family, ...]) -> tuple[Family, ...]:
    if not families:
        raise ValueError("give at least one family")
    if len(set(families)) < len(families):
        raise ValueError("a family is given twice")
    return families


class SinusoidsOptions(Options):
    families: Annotated[tuple[Family, ...], AfterValidator(_distinct)] = Field(
        FAMILIES, description="families of curves; each task is of one, all equally likely"
    )
    shots: PositiveInt = Field(10, description="support points of a task")
    queries: PositiveInt = Field(15, description="query points of a task")
    noise: NonNegativeFloat = Field(
        0.0, description="standard deviation of the noise on support and query outputs"
    )


FINN2017 = """@inproceedings{finn2017model,
  title     = {Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks},
  author    = {Finn, Chelsea and Abbeel, Pieter and Levine, Sergey},
  booktitle = {International Conference on Machine Learning},
  year      = {2017}
}"""
VUORIO2019 = """@inproceedings{vuorio2019multimodal,
  title     = {Multimodal Model-Agnostic Meta-Learning via Task-Aware Modulation},
  author    = {Vuorio, Risto and Sun, Shao-Hua and Hu, Hexiang and Lim, Joseph J.},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2019}
}"""


@hookimpl
def metaforge_datasets() -> list[Component]:
    return [
        Component(
            kind="dataset",
            name="sinusoids",
            target="metaforge_sinusoids.source:Sinusoids",
            options=SinusoidsOptions,
            summary="few-shot regression on sines, lines, parabolas, tanh and absolute values",
            cites=(FINN2017, VUORIO2019),
        )
    ]
