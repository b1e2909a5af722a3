"""Inner optimisation by any optimiser of ``higher``, unrolled and differentiated through."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl

_HIGHER = """@article{grefenstette2019generalized,
  title = {Generalized Inner Loop Meta-Learning},
  author = {Grefenstette, Edward and Amos, Brandon and Yarats, Denis and Htut, Phu Mon and
            Molchanov, Artem and Meier, Franziska and Kiela, Douwe and Cho, Kyunghyun and
            Chintala, Soumith},
  journal = {arXiv preprint arXiv:1910.01727},
  year = {2019}
}"""


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="unrolled",
            target="metaforge_unrolled.algorithm:Unrolled",
            options="metaforge_unrolled.options:UnrolledOptions",
            summary="steps of an optimiser from a learned initialisation, through higher",
            cites=(_HIGHER,),
            check="metaforge_unrolled.peer:missing",
            tasks=("classification", "regression"),
            mixed_precision=False,
        )
    ]
