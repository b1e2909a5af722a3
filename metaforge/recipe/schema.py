"""What a recipe may say: every section, every key, every default.

Sections that name a component (``use:``) hold a ``Choice``; the chosen component's own
model validates what stands beside ``use`` (see ``metaforge.recipe.resolve``).
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from metaforge.options import Choice, choice

#: Tasks and steps are addressed by 64-bit numbers; a batch is held at once.
_MOST, _MOST_AT_ONCE = 10**9, 10**6


class Section(BaseModel):
    """Base of the sections: frozen, and no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )


class Optimizer(Section):
    """The outer loop's optimiser."""

    use: Literal["adam", "sgd"] = Field("adam", description="torch.optim's Adam or SGD")
    lr: PositiveFloat = Field(1e-3, description="learning rate")
    momentum: NonNegativeFloat = Field(0.0, description="SGD's momentum")
    eps_convention: Literal["torch", "tf1"] = Field(
        "torch", description="where Adam's eps goes: tf1 puts it outside the bias correction"
    )
    clip_value: PositiveFloat | None = Field(
        None, description="clip every gradient entry to +-this first"
    )
    clip_norm: PositiveFloat | None = Field(
        None, description="then scale each tensor's gradient to at most this norm"
    )


class Bank(Section):
    """The finite, seeded set of meta-training tasks that conditioning recalls."""

    size: PositiveInt = Field(5000, le=_MOST, description="N, the number of tasks")


class MetaTrain(Section):
    """Phase 1: the unconditional warm start theta_hat."""

    steps: NonNegativeInt = Field(1000, le=_MOST, description="outer steps")
    batch: PositiveInt = Field(12, le=_MOST_AT_ONCE, description="tasks a step (meta-batch)")
    tasks: Literal["bank", "stream"] = Field(
        "stream", description="train on the bank's tasks, or on fresh ones that never repeat"
    )
    optimizer: Optimizer = Field(default_factory=Optimizer)
    validate_every: PositiveInt = Field(250, description="steps between validations")
    validation_targets: PositiveInt = Field(200, le=_MOST, description="validation tasks")


class Condition(Section):
    """Phase 3: theta moves to each target, on the tasks recalled for it."""

    steps: NonNegativeInt = Field(
        50, le=_MOST_AT_ONCE, description="J, the headline number of steps"
    )
    batch: PositiveInt = Field(8, le=_MOST_AT_ONCE, description="B, recalled tasks a step")
    top_m: PositiveInt = Field(
        50, le=_MOST, description="M, tasks kept of the bank; M >= N keeps all"
    )
    beta1: NonNegativeFloat = Field(1.0, description="scale of the bank term")
    beta2: NonNegativeFloat = Field(1.0, description="scale of the target term")
    sampling: Literal["uniform", "proportional"] = Field(
        "uniform",
        description="draw recalled tasks uniformly and weight their losses, "
        "or draw them by weight and do not",
    )
    weights_in_loss: Literal["alpha", "topm-uniform"] = Field(
        "alpha", description="weight losses by alpha, or use alpha for the choice of tasks alone"
    )
    negative: Literal["clip", "keep"] = Field(
        "clip", description="negative weights among the kept: set to 0, or keep"
    )
    record_at: tuple[NonNegativeInt, ...] | None = Field(
        None, description="steps at which each target is evaluated; default: 0, J and some between"
    )
    optimizer: Optimizer = Field(default_factory=Optimizer)
    optimizer_state: Literal["fresh", "meta-train"] = Field(
        "fresh",
        description="a target's optimiser starts anew, or with theta's moments of meta-training",
    )


def _one_value_at_least(grid: dict[str, tuple]) -> dict[str, tuple]:
    for key, values in grid.items():
        if not values:
            raise ValueError(f"{key}: give at least one value")
    return grid


class Select(Section):
    """Phase 2.5: options chosen on validation targets, never on test, by successive halving."""

    grid: Annotated[dict[str, tuple], AfterValidator(_one_value_at_least)] = Field(
        default_factory=dict,
        description="dotted keys and the values to try, e.g. condition.top_m: [50, 200]; options "
        "that say validate add theirs",
    )
    targets: PositiveInt = Field(
        50, le=_MOST_AT_ONCE, description="validation targets, all of them for the last rung"
    )
    eta: int = Field(
        3, ge=2, le=_MOST_AT_ONCE, description="the best 1/eta of a rung's combinations go on"
    )
    budget: PositiveInt | None = Field(
        None,
        description="conditionings (one target, one combination, the most steps tried) at most: "
        "of a larger grid a random part is tried; default: what the whole grid takes",
    )


class Evaluate(Section):
    """Phase 4: frozen targets, the same for every run of the same data and seed."""

    split: Literal["test", "val", "train"] = Field("test", description="where targets come from")
    targets: PositiveInt = Field(100, le=_MOST, description="targets (of each run)")
    runs: PositiveInt = Field(
        1, le=_MOST_AT_ONCE, description="R runs of `targets` tasks each; the paper has 50 of 200"
    )
    controls: tuple[
        Literal["uniform_bank", "random_m", "topm_equal", "target_only", "uncertainty", "oracle"],
        ...,
    ] = Field((), description="what SP is compared with on the same targets")
    without_target_term: bool = Field(
        False, description="run SP and the bank controls at beta2 = 0 too"
    )
    workers: PositiveInt | None = Field(
        None,
        le=1024,
        description="processes that share the targets, same bits for any number; default: "
        "one a core (at most 8) on the CPU with threads: 1 (Linux), else 1",
    )
    batch: PositiveInt | None = Field(
        None,
        le=_MOST_AT_ONCE,
        description="targets conditioned at once, each by a copy of theta; results differ by "
        "rounding alone; default: 1 on the CPU, on CUDA as many as fit, at most 64",
    )


#: Mean and spread: in percent for accuracies, in the metric's own unit for regression.
PublishedFigure = tuple[float, NonNegativeFloat]


class Published(Section):
    """Figures that others printed for one setting, to stand beside the measured ones.

    They change nothing of what a run computes, and do not make it another method.
    """

    when: dict[str, Any] | tuple[dict[str, Any], ...] = Field(
        description="dotted keys and the values that the recipe must have, e.g. "
        "{data.shots: 5}; or a list of such mappings, all of which must hold"
    )
    source: str = Field(min_length=1, description="where it is printed, and what differs there")
    unconditional: PublishedFigure | None = Field(
        None, description="[mean, spread] at J = 0: percent, or the metric's unit for regression"
    )
    conditional: PublishedFigure | None = Field(None, description="[mean, spread] after J steps")
    spread: str | None = Field(
        None, description="what the source's +- is, e.g. sd over 50 runs of 200 tasks"
    )
    finding: str | None = Field(
        None, description="what the source says in words, where it prints no figure (a plot)"
    )

    def conditions(self) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        """Each condition's place within the entry, which ends with its dotted key, and value."""
        parts = enumerate(self.when) if isinstance(self.when, tuple) else [(None, self.when)]
        for index, part in parts:
            at = ("when",) if index is None else ("when", index)
            for key, value in part.items():
                yield (*at, key), value

    @model_validator(mode="after")
    def _says_what_it_is(self) -> Self:
        figures = self.unconditional is not None or self.conditional is not None
        if figures and self.spread is None:
            raise ValueError("spread: say what the +- of the figures is, or that it is not stated")
        if not figures and self.finding is None:
            raise ValueError("give unconditional, conditional, or a finding in words")
        return self


def _device_name(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
        raise ValueError(f"{name!r} is no device: say auto, cpu, cuda or cuda:1")
    return name


Device = Annotated[str, AfterValidator(_device_name)]


class Recipe(Section):
    """A whole run, from data to results."""

    name: str = Field(
        "recipe", max_length=100, description="names the run's folder", pattern=r"^[\w.-]+$"
    )
    preset: Literal["paper", "released"] | None = Field(
        None,
        description="settings of phases 2 and 3 as in the paper, or as in its authors' program, "
        "where the recipe does not say otherwise",
    )
    seed: NonNegativeInt = Field(0, description="the root seed of every stream")
    device: Device = Field("auto", description="auto, cpu, cuda or cuda:1")
    precision: Literal["float32", "float64", "tf32", "bf16"] = Field(
        "float32",
        description="of theta and tasks; tf32: float32, on CUDA with faster products in a step; "
        "bf16: float32, with the networks' forward passes in bfloat16",
    )
    threads: PositiveInt | None = Field(
        1,
        le=1024,
        description="CPU threads of PyTorch; tasks are small, so that more mostly wait for each "
        "other, and targets are shared among processes at 1 alone; null: as many as PyTorch takes",
    )
    on_nan: Literal["stop", "skip"] = Field(
        "stop",
        description="a loss that is not finite stops the run, or its step is skipped and counted",
    )
    allow_unused: bool = Field(False, description="accept parameters that the loss does not reach")
    output: str = Field("runs", description="folder of runs, relative to the working folder")
    data: Choice = choice("dataset", description="task source")
    inner: Choice = choice("inner_algorithm", description="Alg(theta, D)")
    bank: Bank = Field(default_factory=Bank)
    meta_train: MetaTrain = Field(default_factory=MetaTrain)
    kernel: Choice = choice("task_kernel", "gaussian", description="k(D, D')")
    weighting: Choice = choice("task_weighting", "tasml", description="alpha(D)")
    condition: Condition = Field(default_factory=Condition)
    select: Select | None = None
    evaluate: Evaluate = Field(default_factory=Evaluate)
    published: tuple[Published, ...] = Field(
        (), description="figures printed by others, shown beside the measured ones; no settings"
    )
    trackers: tuple[Choice, ...] = Field((), json_schema_extra={"component_kind": "tracker"})

    @property
    def dtype(self) -> str:
        """The precision of theta and tasks."""
        return self.precision if self.precision == "float64" else "float32"
