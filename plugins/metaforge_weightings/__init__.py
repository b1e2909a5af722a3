"""Task weightings: tasml (kernel ridge scores), uniform, and learned uncertainty.

This module holds the options and imports no torch; each weighting is in a module of its own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from metaforge.components import Component, Options
from metaforge.hookspecs import hookimpl


class TasmlOptions(Options):
    lambda_: PositiveFloat | Literal["n^-1/2"] = Field(
        "n^-1/2",
        alias="lambda",
        description="ridge on the kernel matrix: a number (1e-8 interpolates, the paper's "
        "practice), or n^-1/2, the choice of its theorem",
    )


class UniformOptions(Options):
    pass


class UncertaintyOptions(Options):
    per: Literal["group", "task"] = Field(
        "group",
        description="what shares a log-variance: the tasks of a group, or none (one a task, "
        "which hardly moves in a large bank)",
    )
    clusters: PositiveInt = Field(
        10, description="k-means clusters of signatures that serve as groups where there are none"
    )
    learning_rate: PositiveFloat = Field(
        1e-2, description="learning rate of the log-variances, their own"
    )


WANG2020 = """@inproceedings{wang2020structured,
  title     = {Structured Prediction for Conditional Meta-Learning},
  author    = {Wang, Ruohan and Demiris, Yiannis and Ciliberto, Carlo},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2020}
}"""
KENDALL2018 = """@inproceedings{kendall2018multi,
  title     = {Multi-Task Learning Using Uncertainty to Weigh Losses for Scene Geometry
               and Semantics},
  author    = {Kendall, Alex and Gal, Yarin and Cipolla, Roberto},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year      = {2018}
}"""


@hookimpl
def metaforge_task_weightings() -> list[Component]:
    return [
        Component(
            kind="task_weighting",
            name="tasml",
            target="metaforge_weightings.tasml:Tasml",
            options=TasmlOptions,
            summary="alpha(D) = (K + lambda I)^-1 v(D): structured prediction's scores",
            cites=(WANG2020,),
        ),
        Component(
            kind="task_weighting",
            name="uniform",
            target="metaforge_weightings.uniform:Uniform",
            options=UniformOptions,
            summary="every bank task counts the same: further unconditional meta-training",
        ),
        Component(
            kind="task_weighting",
            name="uncertainty",
            target="metaforge_weightings.uncertainty:Uncertainty",
            options=UncertaintyOptions,
            summary="learned log-variances weigh the losses of groups of tasks",
            cites=(KENDALL2018,),
        ),
    ]
