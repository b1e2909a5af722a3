"""The public LEO embeddings of miniImageNet and tieredImageNet: ``leo_embeddings``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import RUSU2019
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_VINYALS2016 = """@inproceedings{vinyals2016matching,
  title = {Matching Networks for One Shot Learning},
  author = {Vinyals, Oriol and Blundell, Charles and Lillicrap, Timothy and
            Kavukcuoglu, Koray and Wierstra, Daan},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {29},
  year = {2016}
}"""

_REN2018 = """@inproceedings{ren2018meta,
  title = {Meta-Learning for Semi-Supervised Few-Shot Classification},
  author = {Ren, Mengye and Triantafillou, Eleni and Ravi, Sachin and Snell, Jake and
            Swersky, Kevin and Tenenbaum, Joshua B. and Larochelle, Hugo and Zemel, Richard S.},
  booktitle = {International Conference on Learning Representations},
  year = {2018}
}"""


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="leo_embeddings",
            target="metaforge_leo_embeddings.source:load",
            options="metaforge_leo_embeddings.options:LeoEmbeddingsOptions",
            summary="miniImageNet or tieredImageNet as the features that LEO's authors released",
            cites=(RUSU2019, _VINYALS2016, _REN2018),
            check="metaforge_leo_embeddings.layout:check",
            groups=False,
            tasks=("classification",),
            facts="metaforge_leo_embeddings.layout:facts",
        )
    ]
