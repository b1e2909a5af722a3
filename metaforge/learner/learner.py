"""A trained learner: moved to a user's own task as a run moves to its targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from metaforge import environment, seeding, stages
from metaforge.arms import BankFacts, conditional
from metaforge.conditioning import Conditioner
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.creation import create
from metaforge.errors import DataError, PluginError, RecipeError
from metaforge.learner.own_task import OwnTask, own_task
from metaforge.metatrain import WarmStart
from metaforge.recipe.schema import Recipe
from metaforge.scoring import Scorer, keep
from metaforge.stages import Parts
from metaforge.tasks import TaskBatch, TaskShape

if TYPE_CHECKING:
    from metaforge.adapted import Adapted


@dataclass(frozen=True, eq=False)
class Conditioned:
    """theta moved to a task.

    recalled  the bank tasks that it was moved on [M] and their weights [M]; None where J is 0,
              or for weightings that weigh the whole bank alike for every task
    skipped   steps that were not finite, where ``on_nan: skip`` leaves them out
    """

    theta: Params
    task: OwnTask
    steps: int
    recalled: tuple[list[int], list[float]] | None
    skipped: int


class Bank:
    """The bank at one number of ways, fitted when it is first needed."""

    def __init__(
        self, parts: Parts, start: WarmStart, checks: Sequence[Callable[[Bank], None]] = ()
    ):
        self.parts, self.start, self._checks = parts, start, checks
        #: What makes probabilities of scores, once it is fitted.
        self.scale: float | None = None

    @cached_property
    def facts(self) -> BankFacts:
        return self.parts.bank_facts(self.start)

    @cached_property
    def scorer(self) -> Scorer:
        parts = self.parts
        for check in self._checks:
            check(self)
        return Scorer(parts.weighting, parts.weighting_state, parts.gram, parts.recipe.bank.size)

    def condition(self, recipe: Recipe, task: OwnTask) -> Conditioned:
        """J steps from theta_hat, as phase 2 and 3 of a run take them for a target."""
        settings, parts = recipe.condition, self.parts
        if not settings.steps:
            return Conditioned(self.start.theta, task, 0, None, 0)
        kept = None
        if parts.weighting.target_specific:
            alpha = self.scorer.alphas(self._seen(task))
            found = keep(alpha, settings.top_m, settings.negative, [task.task_id])
            kept = found[0][0].cpu().numpy(), found[1][0].cpu().numpy()
        arm = conditional(recipe, self.facts, kept)
        last: list[Params] = []
        inner = self._serving(task.support)
        conditioner = Conditioner(recipe, parts.source, inner, self.start)
        skipped = conditioner.run(task.support, arm, (settings.steps,), last.append)
        recalled = None if kept is None else (kept[0].tolist(), kept[1].tolist())
        return Conditioned(last[0], task, settings.steps, recalled, skipped)

    def _serving(self, support: TaskBatch) -> InnerAlgorithm:
        """The algorithm; one that draws noise for as many rows as it was told of is told of a
        larger support's."""
        parts, rows = self.parts, support.support_x.shape[1]
        shape = parts.source.shape
        classes = 1 if shape.kind == "regression" else support.outputs
        each = -(-rows // classes)
        if each <= min(shape.shots, shape.queries):
            return parts.inner
        if parts.inner.draw_noise(torch.Generator().manual_seed(0), 1) is None:
            return parts.inner
        larger = replace(shape, shots=max(each, shape.shots), queries=max(each, shape.queries))
        inner: InnerAlgorithm = create("inner_algorithm", parts.recipe.inner, parts.context)
        inner.init(larger, seeding.generator(parts.recipe.seed, "init"))
        return inner

    def _seen(self, task: OwnTask) -> Any:
        """The task as the kernel sees it."""
        if self.parts.kernel.reads != "support":
            raise PluginError(
                f"task kernel {self.parts.kernel.name!r} reads a target's queries (signature: "
                "all), and there are none yet: take a run with signature: support"
            )
        wanted = self.parts.gram.phi.view == "features" and self.parts.source.has_features
        if not wanted:
            return task.support
        if task.features is None:
            raise DataError(
                "the run's kernel sees features that its data give beside the learner's inputs, "
                "and how they are made is not known: give features=, a row for each sample"
            )
        return task.features


@dataclass(eq=False)
class Learner:
    """What a finished run has learned, for tasks of the user's own.

    ``condition(x, y)`` moves theta_hat to the task of labelled samples, on the bank tasks that it
    recalls, and gives the adapted predictor as a plain ``nn.Module``.

    parts   the run's data (or what a bundle has of them), algorithm, kernel, weighting
    start   theta_hat
    origin  what a saved model says of it: the run, fingerprints, versions
    notes   what a user has to know of it, a line each
    """

    parts: Parts
    start: WarmStart
    origin: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    #: What looks at the run's own bank before it is first used.
    checks: list[Callable[[Bank], None]] = field(default_factory=list)
    _banks: dict[int, Bank] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts.theta_hat = self.start.theta

    def __deepcopy__(self, memo: Any) -> Learner:
        """Itself: use does not change it, and its data can be large."""
        return self

    @property
    def shape(self) -> TaskShape:
        """Of the run's own tasks."""
        return self.parts.source.shape

    @property
    def is_regression(self) -> bool:
        return self.shape.kind == "regression"

    @property
    def recipe(self) -> Recipe:
        return self.parts.recipe

    def condition(
        self,
        x: Any,
        y: Any,
        steps: int | None = None,
        *,
        features: Any = None,
        task_id: int | None = None,
    ) -> nn.Module:
        """The predictor of a task, ``[n, *x] -> [n, outputs]``, from its support.

        x         samples [n, *x] as the learner sees them (``TaskSource.preprocess`` of raw ones)
        y         class labels [n], any number of each of two classes or more; of a regression
                  learner real targets [n] or [n, d]
        steps     J; by default the run's. 0 is the unconditional learner
        features  phi(x) [n, p], where the run's kernel sees other numbers than the learner
        task_id   names the task's random draws; by default a digest of the task does

        The module's ``classes`` are the labels in the order of its outputs (None in regression).
        It deep-copies, and its ``state_dict`` can be saved and loaded.

        Raises ``DataError`` for samples and labels that cannot be used, and for a number of
        classes that the run's data or algorithm cannot serve; ``NumericError`` where the numbers
        fail, or no bank task resembles the task.
        """
        task = self.task(x, y, features=features, task_id=task_id)
        with self.at_work():
            return self.exported(self.conditioned(task, steps))

    def adapt(
        self,
        samples: Any,
        y: Any,
        steps: int | None = None,
        *,
        source: str | None = None,
        features: Any = None,
    ) -> Adapted:
        """Like ``condition``, of raw samples (images as bytes, features before they are
        normalised): a model that predicts raw samples and can be saved.

        source  which source of a mixture the samples are like
        """
        from metaforge.learner.raw import adapt

        return adapt(self, samples, y, steps=steps, source=source, features=features)

    def task(self, x: Any, y: Any, *, features: Any = None, task_id: int | None = None) -> OwnTask:
        """The samples as a task of this learner; ``condition`` has the arguments and errors."""
        context = self.parts.context
        return own_task(x, y, self.shape, context, features=features, task_id=task_id)

    def conditioned(self, task: OwnTask, steps: int | None = None) -> Conditioned:
        """theta moved to a task; within ``at_work``."""
        recipe = self.recipe
        if steps is not None:
            if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
                raise RecipeError(f"steps is {steps!r}; expected a whole number, 0 or more")
            settings = recipe.condition.model_copy(update={"steps": steps})
            recipe = recipe.model_copy(update={"condition": settings})
        bank = self.bank(task.support.outputs)
        with torch.enable_grad():
            return bank.condition(recipe, task)

    def exported(self, found: Conditioned) -> nn.Module:
        """The adapted predictor as a module of its own."""
        inner = self.bank(found.task.support.outputs).parts.inner
        module = inner.export(found.theta, found.task.support)
        module.classes = found.task.classes  # type: ignore[assignment]
        return module.eval()

    def bank(self, ways: int) -> Bank:
        """The run's bank, or, for another number of classes, its tasks drawn anew at those."""
        if ways not in self._banks:
            own = ways == self.shape.outputs
            parts = self.parts if own else self._resized(ways)
            self._banks[ways] = Bank(parts, self.start, self.checks if own else ())
        return self._banks[ways]

    def _resized(self, ways: int) -> Parts:
        own, recipe = self.shape.outputs, self.recipe
        if not self.parts.inner.variable_ways:
            raise DataError(
                f"the support has {ways} classes; the run's inner algorithm {recipe.inner.use!r} "
                f"serves {own} alone: give {own} classes, or take a run with data.ways={ways} (or "
                "of ls, r2d2 or another algorithm whose parameters serve any number)"
            )
        if self.parts.weighting.learned:
            raise DataError(
                f"the support has {ways} classes; the weights of {recipe.weighting.use!r} were "
                f"learned for the run's own bank, of tasks with {own}: give {own} classes, or take "
                f"a run with data.ways={ways}"
            )
        try:
            source = self.parts.source.resized(ways)
        except DataError as error:
            raise DataError(
                f"the support has {ways} classes; the run's own tasks have {own}, and its data "
                f"make none with {ways}: {error}"
            ) from error
        parts = Parts.build(recipe, self.parts.context, source=source)
        parts.theta_hat = self.start.theta
        return parts

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """PyTorch's threads as the run has them, so that the bits are its own."""
        with stages.threads_put_back():
            environment.prepare(self.recipe.threads)
            yield
