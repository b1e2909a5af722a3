"""The image data sets that few-shot learning compares on: Omniglot, CIFAR-FS, FC100,
miniImageNet, tieredImageNet."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import REN2018, VINYALS2016
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_LAKE2015 = """@article{lake2015human,
  title = {Human-Level Concept Learning Through Probabilistic Program Induction},
  author = {Lake, Brenden M. and Salakhutdinov, Ruslan and Tenenbaum, Joshua B.},
  journal = {Science},
  volume = {350},
  number = {6266},
  pages = {1332--1338},
  year = {2015}
}"""

_KRIZHEVSKY2009 = """@techreport{krizhevsky2009learning,
  title = {Learning Multiple Layers of Features from Tiny Images},
  author = {Krizhevsky, Alex},
  institution = {University of Toronto},
  year = {2009}
}"""

_BERTINETTO2019 = """@inproceedings{bertinetto2019meta,
  title = {Meta-Learning with Differentiable Closed-Form Solvers},
  author = {Bertinetto, Luca and Henriques, Jo{\\~a}o F. and Torr, Philip H. S. and
            Vedaldi, Andrea},
  booktitle = {International Conference on Learning Representations},
  year = {2019}
}"""

_ORESHKIN2018 = """@inproceedings{oreshkin2018tadam,
  title = {{TADAM}: Task Dependent Adaptive Metric for Improved Few-Shot Learning},
  author = {Oreshkin, Boris N. and Rodr{\\'i}guez L{\\'o}pez, Pau and Lacoste, Alexandre},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {31},
  year = {2018}
}"""

_RAVI2017 = """@inproceedings{ravi2017optimization,
  title = {Optimization as a Model for Few-Shot Learning},
  author = {Ravi, Sachin and Larochelle, Hugo},
  booktitle = {International Conference on Learning Representations},
  year = {2017}
}"""


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        _component(
            "omniglot",
            "OmniglotOptions",
            "1,623 handwritten characters of 50 alphabets, from its folders, archives or bits",
            _LAKE2015,
            VINYALS2016,
        ),
        _component(
            "cifar_fs",
            "CifarFsOptions",
            "CIFAR-100 split at random into 64, 16 and 20 classes: images, or features of them",
            _BERTINETTO2019,
            _KRIZHEVSKY2009,
        ),
        _component(
            "fc100",
            "Fc100Options",
            "CIFAR-100 split by superclasses, 12, 4 and 4: images, or features of them",
            _ORESHKIN2018,
            _KRIZHEVSKY2009,
        ),
        _component(
            "mini_imagenet",
            "MiniImagenetOptions",
            "100 classes of ImageNet, 64, 16 and 20, from pickles, tables or folders",
            VINYALS2016,
            _RAVI2017,
        ),
        _component(
            "tiered_imagenet",
            "TieredImagenetOptions",
            "608 classes of ImageNet split by superclasses, from pickles or folders",
            REN2018,
        ),
    ]


def _component(name: str, options: str, summary: str, *cites: str) -> Component:
    return Component(
        kind="dataset",
        name=name,
        target="metaforge_fewshot_images.source:load",
        options=f"metaforge_fewshot_images.options:{options}",
        summary=summary,
        cites=cites,
        check="metaforge_fewshot_images.find:check",
        groups="metaforge_fewshot_images.find:has_groups",
        tasks=("classification",),
        facts="metaforge_fewshot_images.find:facts",
        files="metaforge_fewshot_images.placed:placement",
    )
