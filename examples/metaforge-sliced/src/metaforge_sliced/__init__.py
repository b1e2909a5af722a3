"""Optimal transport between labelled support sets, and weights by likeness."""

from collections.abc import Sequence

from metaforge import hookimpl
from metaforge.components import Component

_KERNEL = """@inproceedings{kolouri2016sliced,
  title = {Sliced {Wasserstein} Kernels for Probability Distributions},
  author = {Kolouri, Soheil and Zou, Yang and Rohde, Gustavo K.},
  booktitle = {CVPR},
  year = {2016}
}"""
_SETS = """@inproceedings{alvarez2020geometric,
  title = {Geometric Dataset Distances via Optimal Transport},
  author = {Alvarez-Melis, David and Fusi, Nicolo},
  booktitle = {NeurIPS},
  year = {2020}
}"""


@hookimpl
def metaforge_task_kernels() -> Sequence[Component]:
    return [
        Component(
            kind="task_kernel",
            name="sliced",
            target="metaforge_sliced.kernel:Sliced",
            options="metaforge_sliced.options:SlicedOptions",
            summary="optimal transport between labelled support sets, along random directions",
            cites=(_KERNEL, _SETS),
            api=1,
        )
    ]


@hookimpl
def metaforge_task_weightings() -> Sequence[Component]:
    return [
        Component(
            kind="task_weighting",
            name="nearest",
            target="metaforge_sliced.weighting:SoftmaxNearest",
            options="metaforge_sliced.options:SoftmaxNearestOptions",
            summary="a softmax of kernel values over the nearest bank tasks",
            api=1,
            target_specific=True,
            learned=False,
        )
    ]
