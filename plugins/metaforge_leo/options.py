"""Options of ``leo``, by the names that its authors' code gives them."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from metaforge.options import Options


class LeoOptions(Options):
    num_latents: PositiveInt = Field(64, description="width of a class's latent code")
    inner_unroll_length: NonNegativeInt = Field(5, description="gradient steps on the codes")
    finetuning_unroll_length: NonNegativeInt = Field(
        5, description="gradient steps on the decoded class weights, after those on the codes"
    )
    inner_lr_init: PositiveFloat = Field(
        1.0, description="learning rate of the codes, where its learning starts"
    )
    finetuning_lr_init: PositiveFloat = Field(
        1e-3, description="learning rate of the class weights, where its learning starts"
    )
    dropout_rate: float = Field(
        0.5, ge=0, lt=1, description="share of input entries dropped in training"
    )
    kl_weight: NonNegativeFloat = Field(
        1e-3, description="of the divergence of the codes from a standard normal, in training"
    )
    encoder_penalty_weight: NonNegativeFloat = Field(
        1e-9, description="of the codes' distance from the adapted ones, in training"
    )
    l2_penalty_weight: NonNegativeFloat = Field(
        1e-8, description="of half the squares of the five weight matrices"
    )
    orthogonality_penalty_weight: NonNegativeFloat = Field(
        1e-3, description="of the decoder rows' squared cosine similarities"
    )

    def unfit_inputs(self, shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return ""
        return (
            f"leo takes features [n, p], but the tasks' inputs have shape {list(shape)}; put a "
            "backbone before it (of glyphs: input: features)"
        )
