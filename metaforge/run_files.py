"""What the JSON files of a run folder must hold to be read again: their keys and types.

Whoever reads such a file hands one of these shapes to ``metaforge.records``, which checks the
file against it: a damaged file, or one of another version, is told at once, with the place.
Keys that nobody reads back are not listed.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator


class Shape(BaseModel):
    """Base: types as they stand in the file, no number that is not finite."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)


class Record(RootModel[dict[str, Any]]):
    """Any keys and values."""


class Status(Shape):
    """``status.json``."""

    state: str
    stage: str


class Identity(Shape):
    """A component and what served it, as ``registry.component_identity`` tells."""

    kind: str
    name: str
    distribution: str
    version: str


class Env(Shape):
    """``env.json``."""

    engine_digest: str
    packages: dict[str, str | None]
    components: dict[str, Identity]
    ranks: int = 1


class Data(Shape):
    """``artifacts/data.json``."""

    fingerprint: str


class Tried(Shape):
    """A combination that selection tried: ``mean`` after ``steps`` steps, over ``targets``
    validation targets, and what the chosen one has on the same less; ``failed`` says why it has
    none."""

    rank: int
    options: dict[str, Any]
    steps: int | None
    mean: float | None
    minus_chosen: float | None
    targets: int
    dropped_in_rung: int | None
    failed: str | None


class Selected(Shape):
    """``select.json``."""

    targets: int
    in_grid: int
    conditionings: int
    chosen: dict[str, Any]
    tried: list[Tried]
    warnings: list[str]


class TrialScores(Shape):
    """A combination's scores on the first validation targets: a row a target, a column a J."""

    scores: list[list[float]]


class Trial(TrialScores):
    """A line of ``select.jsonl``: what a rung added to a combination."""

    rung: int
    options: dict[str, Any]
    failed: str | None = None


class Seconds(RootModel[dict[str, float]]):
    """A line of ``timings.jsonl``: seconds by arm."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Metrics(Shape):
    """A line of ``metrics.jsonl``: phase 1 at a validation."""

    step: int
    validation: float | None = None
    loss: float | None = None


class TargetWeights(Shape):
    """What a target's task weights looked like, as ``scoring.TargetScores`` tells it; those of
    its own group are there together."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    effective_sample_size: float
    alpha_negative: float
    own_group: float | None
    own_group_weight: float | None
    own_group_bank: float | None

    @model_validator(mode="after")
    def _groups_together(self) -> Self:
        of_group = (self.own_group, self.own_group_weight, self.own_group_bank)
        if len({figure is None for figure in of_group}) > 1:
            raise ValueError("of own_group, own_group_weight and own_group_bank some are null")
        return self


class Target(Shape):
    """A line of ``targets.jsonl``."""

    task_id: int
    unconditional: float
    steps: list[int] = Field(min_length=1)
    curves: dict[str, list[float]]
    macro_accuracy: dict[str, float] = {}
    skipped_steps: dict[str, int] = {}
    weights: TargetWeights | None = None

    @model_validator(mode="after")
    def _a_score_for_each_step(self) -> Self:
        return _of_one_length(self, self.steps, self.curves)


class MetaTrained(Shape):
    """What ``artifacts/theta_hat.safetensors`` says of phase 1."""

    steps: int
    best_step: int
    best_score: float | None
    skipped: int


class Cached(MetaTrained):
    """What the cache keeps of phase 1: its curve too."""

    curve: list[dict[str, float]]


class TrainingState(Shape):
    """What ``artifacts/checkpoint.safetensors`` says of phase 1, under way."""

    step: int
    best_step: int
    best_score: float | None
    curve: list[dict[str, float]]
    skipped: int
    ranks: int = 1


class Figure(Shape):
    """A mean over targets, as ``statistics.summary`` tells it."""

    mean: float | None
    sd: float | None
    n: int
    ci95: tuple[float, float] | None


class Difference(Figure):
    """A paired difference, as ``statistics.paired`` tells it."""

    p: float | None


class Control(Figure):
    """A control, and SP less it."""

    sp_minus_control: Difference | None = None


class Curve(Shape):
    """Means after each number of steps, and SP's gain; the gain where steps were asked for."""

    steps: list[int] = Field(min_length=1)
    mean: dict[str, list[float]]
    asked: bool = False
    n: dict[str, int] = {}
    gain: list[Difference] = []

    @model_validator(mode="after")
    def _a_figure_for_each_step(self) -> Self:
        return _of_one_length(
            self, self.steps, {**self.mean, **({"gain": self.gain} if self.asked else {})}
        )


class PerTarget(Shape):
    """Seconds a target, by arm."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    conditional: float


class Clock(Shape):
    """Seconds."""

    per_target: PerTarget


class Printed(Shape):
    """A figure that others printed."""

    mean: float
    spread: float


class PublishedEntry(Shape):
    """What others printed for the run's settings."""

    source: str
    unconditional: Printed | None
    conditional: Printed | None
    spread: str | None
    finding: str | None


class OverRuns(Shape):
    """A figure over R runs of targets."""

    mean: float
    sd_over_runs: float


class Runs(Shape):
    """The paper's protocol: R runs of targets."""

    runs: int
    targets_each: int
    unconditional: OverRuns
    conditional: OverRuns


class Phase1(Shape):
    """What of phase 1 a report tells."""

    steps: int
    skipped: int


class Task(Shape):
    """Data, kind of task and its sizes."""

    data: str
    fingerprint: str
    kind: str
    outputs: int
    shots: int
    queries: int


class Share(Shape):
    """A ratio of means, as ``statistics.ratio`` tells it."""

    mean: float
    ci95: tuple[float, float]


class OracleFindings(Shape):
    """The oracle's gains, and SP's share of them."""

    over_sp: Figure
    over_control: Figure | None
    share: Share | None


class RecalledFindings(Shape):
    """Whose group recalled tasks are of."""

    own_group: Figure
    by_weight: Figure | None = None
    chance: Figure
    absent: int
    grouped: int


class WeightFindings(Shape):
    """The weights' statistics that a verdict shows."""

    kept: int
    effective_sample_size: Figure
    negative: Figure


class StepFindings(Shape):
    """SP's score against the number of steps."""

    last: int
    best: int
    before: int
    last_rise: Figure
    best_over_last: Figure | None


class Verdict(Shape):
    """What limits the gain, as ``metaforge.verdict`` tells it; gains are improvements."""

    over_start: Figure
    control: str | None
    over_control: Figure | None
    control_over_start: Figure | None = None
    over_target_only: Figure | None
    over_without_target: Figure | None
    oracle: OracleFindings | None
    recalled: RecalledFindings | None
    weights: WeightFindings | None
    similarity: float | None
    steps: StepFindings
    limit: str
    because: str
    advice: str


class Results(Shape):
    """``results.json``."""

    recipe: str
    metric: str
    split: str
    task: Task
    steps: int
    meta_train: Phase1
    transductive: bool
    unconditional: Figure
    conditional: Figure
    difference: Difference
    controls: dict[str, Control]
    curve: Curve
    runs: Runs | None = None
    published: list[PublishedEntry] = []
    verdict: Verdict | None = None
    seconds: Clock
    skipped_steps: int
    selection: Selected | None = None
    statistics: str
    notes: list[str]
    warnings: list[str]


class Steps(Shape):
    """A section of a recipe that has steps."""

    steps: int


class StepsTried(Shape):
    """The grid of selection."""

    steps: list[int] = Field([0], alias="condition.steps", min_length=1)


class Selection(Shape):
    """The recipe's ``select``."""

    grid: StepsTried = StepsTried()


class Chosen(Shape):
    """A section of a recipe that names a component."""

    use: str


class MadeRecipe(Shape):
    """What a comparison reads of ``resolved.yaml``, which may be of a recipe of another version."""

    name: str
    seed: int
    inner: Chosen
    kernel: Chosen
    weighting: Chosen
    condition: Steps
    meta_train: Steps
    select: Selection | None = None


def _of_one_length(shape: Any, steps: list[int], columns: dict[str, list[Any]]) -> Any:
    """The shape itself. ``ValueError`` where SP is missing, or a column is not one value a step."""
    if "conditional" not in columns:
        raise ValueError("no scores of the conditional learner")
    for name, values in columns.items():
        if len(values) != len(steps):
            raise ValueError(f"{len(values)} values of {name} for {len(steps)} steps")
    return shape
