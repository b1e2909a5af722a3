"""BibTeX of works that more than one built-in component cites, and of what a recipe uses.
Torch-free."""

from __future__ import annotations

TYPE_CHECKING = False  # plugins import this while commands start
if TYPE_CHECKING:
    from collections.abc import Iterable

    from metaforge.recipe.resolve import Chosen

#: The method that phases 2 and 3 are.
WANG2020 = """@inproceedings{wang2020structured,
  title = {Structured Prediction for Conditional Meta-Learning},
  author = {Wang, Ruohan and Demiris, Yiannis and Ciliberto, Carlo},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33},
  year = {2020}
}"""

FINN2017 = """@inproceedings{finn2017model,
  title = {Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks},
  author = {Finn, Chelsea and Abbeel, Pieter and Levine, Sergey},
  booktitle = {International Conference on Machine Learning},
  year = {2017}
}"""

ARNOLD2020 = """@article{arnold2020learn2learn,
  title = {learn2learn: A Library for Meta-Learning Research},
  author = {Arnold, S{\\'e}bastien M. R. and Mahajan, Praateek and Datta, Debajyoti and
            Bunner, Ian and Zarkias, Konstantinos Saitas},
  journal = {arXiv preprint arXiv:2008.12284},
  year = {2020}
}"""

RUSU2019 = """@inproceedings{rusu2019meta,
  title = {Meta-Learning with Latent Embedding Optimization},
  author = {Rusu, Andrei A. and Rao, Dushyant and Sygnowski, Jakub and Vinyals, Oriol and
            Pascanu, Razvan and Osindero, Simon and Hadsell, Raia},
  booktitle = {International Conference on Learning Representations},
  year = {2019}
}"""

VINYALS2016 = """@inproceedings{vinyals2016matching,
  title = {Matching Networks for One Shot Learning},
  author = {Vinyals, Oriol and Blundell, Charles and Lillicrap, Timothy and
            Kavukcuoglu, Koray and Wierstra, Daan},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {29},
  year = {2016}
}"""

REN2018 = """@inproceedings{ren2018meta,
  title = {Meta-Learning for Semi-Supervised Few-Shot Classification},
  author = {Ren, Mengye and Triantafillou, Eleni and Ravi, Sachin and Snell, Jake and
            Swersky, Kevin and Tenenbaum, Joshua B. and Larochelle, Hugo and Zemel, Richard S.},
  booktitle = {International Conference on Learning Representations},
  year = {2018}
}"""

LEE2019 = """@inproceedings{lee2019meta,
  title = {Meta-Learning with Differentiable Convex Optimization},
  author = {Lee, Kwonjoon and Maji, Subhransu and Ravichandran, Avinash and Soatto, Stefano},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year = {2019}
}"""


def entries(chosen: Iterable[Chosen]) -> list[str]:
    """The method's, and those of every component chosen, each once."""
    found = [WANG2020, *(entry for choice in chosen for entry in choice.component.cites)]
    return list({_key(entry): entry.strip() for entry in found}.values())


def _key(entry: str) -> str:
    """``wang2020structured`` of ``@inproceedings{wang2020structured, ...}``."""
    return entry.partition("{")[2].partition(",")[0].strip()
