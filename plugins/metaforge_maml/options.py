"""Options of ``maml``."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from metaforge.components import Context
from metaforge.optional import LEARN2LEARN
from metaforge.options import Choice, Options, choice


class MamlOptions(Options):
    model: Choice = choice("model", "linear", description="the network that adapts")
    steps: NonNegativeInt = Field(5, description="inner gradient steps; 0 leaves theta as it is")
    lr: PositiveFloat = Field(0.1, description="inner learning rate, on the mean support loss")
    order: Literal[1, 2] = Field(
        2, description="2: differentiate through the inner steps; 1: hold their gradients constant"
    )
    backend: Literal["auto", "vectorized", "loop", "vmap", "learn2learn"] = Field(
        "auto",
        description="vectorized: the fastest of our own that the model allows (closed-form "
        "gradients; else vmap for small models and, on a GPU, for all; else a loop; the run says "
        "which); loop: task by task; vmap: all tasks at once, refused where it would be wrong; "
        "learn2learn: its MAML, task by task; auto: vectorized, the fastest for every model",
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
    def _chunks_are_ours(self) -> Self:
        if self.support_chunk is not None and self.backend in ("learn2learn", "vmap"):
            raise ValueError(
                f"support_chunk: {self.backend} has none; use backend: vectorized or auto"
            )
        return self


def missing(options: MamlOptions, context: Context) -> list[str]:
    """What the chosen backend lacks on this machine."""
    if options.backend != "learn2learn" or not LEARN2LEARN.missing:
        return []
    return [
        f"backend: learn2learn: {LEARN2LEARN.missing}\n  or use backend: auto, which does without"
    ]
