"""Gradient-based meta-learning by learn2learn: MAML, Meta-SGD, GBML, and ANIL by adapting a
head alone."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import ARNOLD2020, FINN2017
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_META_SGD = """@article{li2017meta,
  title = {Meta-{SGD}: Learning to Learn Quickly for Few-Shot Learning},
  author = {Li, Zhenguo and Zhou, Fengwei and Chen, Fei and Li, Hang},
  journal = {arXiv preprint arXiv:1707.09835},
  year = {2017}
}"""

_ANIL = """@inproceedings{raghu2020rapid,
  title = {Rapid Learning or Feature Reuse? Towards Understanding the Effectiveness of {MAML}},
  author = {Raghu, Aniruddh and Raghu, Maithra and Bengio, Samy and Vinyals, Oriol},
  booktitle = {International Conference on Learning Representations},
  year = {2020}
}"""

_META_CURVATURE = """@inproceedings{park2019meta,
  title = {Meta-Curvature},
  author = {Park, Eunbyung and Oliva, Junier B.},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2019}
}"""

_KRONECKER = """@article{arnold2019maml,
  title = {When {MAML} Can Adapt Fast and How to Assist When It Cannot},
  author = {Arnold, S{\\'e}bastien M. R. and Iqbal, Shariq and Sha, Fei},
  journal = {arXiv preprint arXiv:1910.13603},
  year = {2019}
}"""


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="learn2learn",
            target="metaforge_learn2learn.algorithm:Learn2learn",
            options="metaforge_learn2learn.options:Learn2learnOptions",
            summary="learn2learn's MAML, MetaSGD and GBML, on all of a model or its head (ANIL)",
            cites=(ARNOLD2020, FINN2017, _META_SGD, _ANIL, _META_CURVATURE, _KRONECKER),
            check="metaforge_learn2learn.peer:missing",
            tasks=("classification", "regression"),
            mixed_precision=False,
        )
    ]
