"""MAML (Finn et al. 2017), by hand-batched formulas, by functional calls or by learn2learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from metaforge.components import Choice, Component, Context, Options, choice
from metaforge.hookspecs import hookimpl


class MamlOptions(Options):
    model: Choice = choice("model", "linear", description="the network that adapts")
    steps: NonNegativeInt = Field(5, description="inner gradient steps; 0 leaves theta as it is")
    lr: PositiveFloat = Field(0.1, description="inner learning rate, on the mean support loss")
    order: Literal[1, 2] = Field(
        2, description="2: differentiate through the inner steps; 1: hold their gradients constant"
    )
    backend: Literal["auto", "vectorized", "learn2learn"] = Field(
        "auto",
        description="vectorized: the fastest of our own that the model allows (closed-form "
        "gradients, vmap or a loop; the run says which); learn2learn: its MAML, task by task; "
        "auto: vectorized, the faster of the two for every model",
    )
    allow_unused: bool = Field(
        False, description="hold constant the parameters that are frozen or unused by the output"
    )
    support_chunk: PositiveInt | None = Field(
        None,
        description="sum inner gradients over support chunks of this many rows, so that "
        "activations at evaluation or order 1 fit in memory; the adapted weights are the same",
    )

    @model_validator(mode="after")
    def _chunks_are_ours(self) -> MamlOptions:
        if self.support_chunk is not None and self.backend == "learn2learn":
            raise ValueError("support_chunk: learn2learn has none; use backend: vectorized or auto")
        return self


_MAML = """@inproceedings{finn2017model,
  title = {Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks},
  author = {Finn, Chelsea and Abbeel, Pieter and Levine, Sergey},
  booktitle = {International Conference on Machine Learning},
  year = {2017}
}"""

_LEARN2LEARN = """@article{arnold2020learn2learn,
  title = {learn2learn: A Library for Meta-Learning Research},
  author = {Arnold, S{\\'e}bastien M. R. and Mahajan, Praateek and Datta, Debajyoti and
            Bunner, Ian and Zarkias, Konstantinos Saitas},
  journal = {arXiv preprint arXiv:2008.12284},
  year = {2020}
}"""


@hookimpl
def metaforge_inner_algorithms() -> Sequence[Component]:
    return [
        Component(
            kind="inner_algorithm",
            name="maml",
            target="metaforge_maml.algorithm:Maml",
            options=MamlOptions,
            summary="gradient steps from a learned initialisation, first or second order",
            cites=(_MAML, _LEARN2LEARN),
            check="metaforge_maml:missing",
        )
    ]


def missing(options: MamlOptions, context: Context) -> list[str]:
    """What the chosen backend lacks on this machine."""
    from metaforge_maml import peer

    absent = options.backend == "learn2learn" and peer.location() is None
    return [peer.MISSING] if absent else []
