"""Task kernels on signatures of data sets: gaussian, laplace and linear.

Each kernel is in a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaforge import registry
from metaforge.citations import WANG2020
from metaforge.components import Component
from metaforge.errors import Problem
from metaforge.hookspecs import hookimpl

if TYPE_CHECKING:
    from metaforge.recipe.schema import Recipe

GRETTON2012 = """@article{gretton2012kernel,
  title   = {A Kernel Two-Sample Test},
  author  = {Gretton, Arthur and Borgwardt, Karsten M. and Rasch, Malte J. and
             Sch{\\"o}lkopf, Bernhard and Smola, Alexander},
  journal = {Journal of Machine Learning Research},
  volume  = {13},
  pages   = {723--773},
  year    = {2012}
}"""


@hookimpl
def metaforge_task_kernels() -> Sequence[Component]:
    return [
        Component(
            kind="task_kernel",
            name="gaussian",
            target="metaforge_kernels.gaussian:Gaussian",
            options="metaforge_kernels.options:GaussianOptions",
            summary="exp(-gamma d^2) of the distance between task signatures (MMD)",
            cites=(WANG2020, GRETTON2012),
        ),
        Component(
            kind="task_kernel",
            name="laplace",
            target="metaforge_kernels.laplace:Laplace",
            options="metaforge_kernels.options:LaplaceOptions",
            summary="exp(-d / sigma) of the distance between task signatures",
            cites=(WANG2020,),
        ),
        Component(
            kind="task_kernel",
            name="linear",
            target="metaforge_kernels.linear:Linear",
            options="metaforge_kernels.options:LinearOptions",
            summary="<a, b> + c of task signatures: finite rank, needs no kernel matrix",
            cites=(WANG2020,),
        ),
    ]


@hookimpl
def metaforge_check_recipe(recipe: Recipe) -> Sequence[Problem]:
    weighting = registry.get("task_weighting", recipe.weighting.use)
    if recipe.kernel.options.get("phi") != "theta_hat" or not weighting.learned:
        return []
    return [
        Problem(
            "kernel.phi",
            f"theta_hat's features are there after phase 1, and weighting {weighting.name!r} is "
            "learned in it: take phi: data, or another weighting",
        )
    ]
