"""Options of ``unrolled``: the optimisers that higher has, and the settings it honours."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    field_validator,
    model_validator,
)

from metaforge.options import Choice, Options, choice

#: What each optimiser reads besides lr. ASGD's t0 is not among them: it sets when averaging
#: begins, and the average is not what adapts.
SETTINGS: dict[str, tuple[str, ...]] = {
    "sgd": ("momentum", "dampening", "nesterov", "weight_decay"),
    "adam": ("betas", "eps", "amsgrad", "weight_decay"),
    "adamax": ("betas", "eps", "weight_decay"),
    "adagrad": ("lr_decay", "initial_accumulator_value", "eps", "weight_decay"),
    "adadelta": ("rho", "eps", "weight_decay"),
    "asgd": ("lambd", "alpha", "weight_decay"),
    "rmsprop": ("alpha", "eps", "momentum", "centered", "weight_decay"),
    "rprop": ("etas", "step_sizes"),
}
#: Names that a user may try, and what to say.
ABSENT = {
    "adamw": "adamw: higher has no AdamW, whose decay is decoupled from the gradient; "
    "use adam, where weight_decay is an L2 penalty",
    "nadam": "nadam: higher has no NAdam; use adam, or sgd with momentum and nesterov: true",
    "momentum": "momentum: say optimizer: sgd with momentum: 0.9",
}

Decay = Annotated[float, Field(ge=0, lt=1)]
Shrink = Annotated[float, Field(gt=0, lt=1)]
Grow = Annotated[float, Field(gt=1)]


class UnrolledOptions(Options):
    model: Choice = choice("model", "linear", description="the network that adapts")
    steps: NonNegativeInt = Field(5, description="inner steps; 0 leaves theta as it is")
    order: Literal[1, 2] = Field(
        2, description="2: differentiate through the inner steps; 1: hold the update constant"
    )
    optimizer: Literal[
        "sgd", "adam", "adamax", "adagrad", "adadelta", "asgd", "rmsprop", "rprop"
    ] = Field(
        "sgd",
        description="torch.optim's rule as higher unrolls it; adam has eps before the bias "
        "correction (TF1's convention), not after it as torch has",
    )
    lr: PositiveFloat = Field(0.1, description="inner learning rate, on the mean support loss")
    weight_decay: NonNegativeFloat | None = Field(
        None, description="L2 penalty, added to the gradient (all but rprop); default 0"
    )
    momentum: NonNegativeFloat | None = Field(None, description="sgd, rmsprop; default 0")
    dampening: NonNegativeFloat | None = Field(
        None, description="sgd: of the gradient that enters the momentum; default 0"
    )
    nesterov: bool | None = Field(None, description="sgd: Nesterov's momentum; default false")
    betas: tuple[Decay, Decay] | None = Field(
        None, description="adam, adamax: decay of the two moments; default [0.9, 0.999]"
    )
    amsgrad: bool | None = Field(
        None, description="adam: divide by the largest second moment so far; default false"
    )
    eps: PositiveFloat | None = Field(
        None, description="added to the denominator; default torch.optim's (adam 1e-8)"
    )
    lr_decay: NonNegativeFloat | None = Field(
        None, description="adagrad: lr / (1 + (t - 1) lr_decay) at step t; default 0"
    )
    initial_accumulator_value: NonNegativeFloat | None = Field(
        None, description="adagrad: where the sum of squares starts; default 0"
    )
    rho: Decay | None = Field(None, description="adadelta: decay of the averages; default 0.9")
    lambd: NonNegativeFloat | None = Field(None, description="asgd: decay term; default 1e-4")
    alpha: NonNegativeFloat | None = Field(
        None,
        description="rmsprop: decay of the squares, default 0.99; asgd: power of the step "
        "size's decay, default 0.75",
    )
    centered: bool | None = Field(
        None,
        description="rmsprop, order 1: divide by the gradient's standard deviation; default false",
    )
    etas: tuple[Shrink, Grow] | None = Field(
        None, description="rprop: factors of the step size; default [0.5, 1.2]"
    )
    step_sizes: tuple[PositiveFloat, PositiveFloat] | None = Field(
        None, description="rprop: least and largest step size; default [1e-6, 50]"
    )
    allow_unused: bool = Field(
        False, description="hold constant the parameters that are frozen or unused by the output"
    )

    @property
    def settings(self) -> dict[str, Any]:
        """The optimiser's keyword arguments besides lr; unset ones are torch.optim's defaults."""
        given = {name: getattr(self, name) for name in SETTINGS[self.optimizer]}
        return {name: value for name, value in given.items() if value is not None}

    @field_validator("optimizer", mode="before")
    @classmethod
    def _is_in_higher(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lower() in ABSENT:
            raise ValueError(ABSENT[value.lower()])
        return value

    @model_validator(mode="after")
    def _settings_are_the_optimizers(self) -> UnrolledOptions:
        known = SETTINGS[self.optimizer]
        every = {name for names in SETTINGS.values() for name in names}
        odd = sorted(name for name in every - set(known) if getattr(self, name) is not None)
        if odd:
            raise ValueError(
                f"{', '.join(odd)}: not a setting of optimizer: {self.optimizer}, which has "
                f"{', '.join(known)}"
            )
        if self.optimizer == "sgd" and not self.momentum and (self.dampening or self.nesterov):
            raise ValueError("dampening and nesterov do nothing without momentum; set it too")
        if self.nesterov and self.dampening:
            raise ValueError("nesterov: needs a dampening of 0; drop one of the two")
        if self.optimizer == "rmsprop" and self.alpha is not None and self.alpha >= 1:
            raise ValueError("alpha: rmsprop needs a decay below 1")
        if self.centered and self.order == 2:
            raise ValueError(
                "centered: in higher its second derivative is NaN wherever a gradient is exactly "
                "zero, as a relu's can be; use order: 1, or drop it"
            )
        if self.step_sizes is not None and not self.step_sizes[0] < self.step_sizes[1]:
            raise ValueError("step_sizes: the least comes first, then the largest")
        return self
