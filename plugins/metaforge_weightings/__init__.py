"""Task weightings: tasml (kernel ridge scores), uniform, and learned uncertainty.

Each weighting is in a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import WANG2020
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

KENDALL2018 = """@inproceedings{kendall2018multi,
  title     = {Multi-Task Learning Using Uncertainty to Weigh Losses for Scene Geometry
               and Semantics},
  author    = {Kendall, Alex and Gal, Yarin and Cipolla, Roberto},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year      = {2018}
}"""


@hookimpl
def metaforge_task_weightings() -> Sequence[Component]:
    return [
        Component(
            kind="task_weighting",
            name="tasml",
            target="metaforge_weightings.tasml:Tasml",
            options="metaforge_weightings.options:TasmlOptions",
            summary="alpha(D) = (K + lambda I)^-1 v(D): structured prediction's scores",
            cites=(WANG2020,),
            target_specific=True,
            learned=False,
        ),
        Component(
            kind="task_weighting",
            name="uniform",
            target="metaforge_weightings.uniform:Uniform",
            options="metaforge_weightings.options:UniformOptions",
            summary="every bank task counts the same: further unconditional meta-training",
            target_specific=False,
            learned=False,
        ),
        Component(
            kind="task_weighting",
            name="uncertainty",
            target="metaforge_weightings.uncertainty:Uncertainty",
            options="metaforge_weightings.options:UncertaintyOptions",
            summary="learned log-variances weigh the losses of groups of tasks",
            cites=(KENDALL2018,),
            target_specific=False,
            learned=True,
        ),
    ]
