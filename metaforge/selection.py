"""Phase 2.5: options chosen on validation targets, by successive halving, never on test.

Every combination of ``select.grid`` (``metaforge.recipe.trials``) is conditioned on the first
validation targets, the best of them on further ones, rung by rung (``metaforge.halving``), always
on the same targets. Of the last rung the best is taken (the first in the grid's order, if several
tie). The number of steps J is free: it is read off each combination's own curve.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaforge.cache import held
from metaforge.console import Console
from metaforge.errors import DamagedFile, NumericError, Problem, RecipeError, one_line
from metaforge.evaluation import Evaluator
from metaforge.metatrain import WarmStart
from metaforge.recipe.grid import LEARNED, LEARNED_FROM, beyond_validated
from metaforge.recipe.overrides import split_key
from metaforge.recipe.schema import Recipe
from metaforge.recipe.trials import STEPS, Trials
from metaforge.records import keep, read_json, write_json
from metaforge.run_files import TrialScores
from metaforge.rundir import RunDir
from metaforge.scoring import TargetScores
from metaforge.seals import sealed
from metaforge.selection_table import Candidate, Ranking, table
from metaforge.stages import Parts

if TYPE_CHECKING:
    from metaforge.recipe import ResolvedRecipe

Scores = list[list[float]]


def check(resolved: ResolvedRecipe, parts: Parts) -> None:
    """Create every kernel and weighting that selection will try, before the long work starts.

    Raises ``RecipeError`` beside a learned weighting, which depends on them in phase 1, and for
    a combination that ``validate`` had no time for; ``DataError`` where one will not have the
    memory it needs; and what their creation raises.
    """
    if resolved.recipe.select is None:
        return
    if unfit := list(beyond_validated(resolved)):
        raise RecipeError([resolved.document.problem(at, message) for at, message in unfit])
    seen = []
    for combination in Trials(resolved.recipe).combinations:
        values = {k: v for k, v in combination.items() if split_key(k)[0] in LEARNED_FROM}
        if values in seen:
            continue
        seen.append(values)
        trial = parts.with_recipe(resolved.with_values(values).recipe) if values else parts
        trial.require_memory()
        for tried in (parts, trial):
            if values and tried.weighting.learned:
                message = LEARNED.format(tried.recipe.weighting.use)
                raise RecipeError([Problem("select.grid", message)])


def select(
    resolved: ResolvedRecipe,
    parts: Parts,
    start: WarmStart,
    folder: RunDir,
    console: Console,
) -> Recipe:
    """The recipe with the chosen options in place; ``select.json`` holds all that was tried.

    What stands in ``select.jsonl`` is not done again, nor what another run left in the cache.
    Raises ``NumericError`` where no combination has finite scores on every target.
    """
    trials = Trials(parts.recipe)
    ranking = Ranking(trials.steps, parts.source.shape.kind == "regression")
    lines = folder.lines("select.jsonl")
    bench = _Bench(resolved, parts, start, trials, console)
    candidates = [Candidate(options) for options in trials.combinations]
    before = parts.ranks.from_first(lambda: list(lines.records))
    done = sum(len(record["scores"]) for record in before)
    earlier = iter(before)
    remaining = candidates
    with console.stage("select", trials.conditionings, done) as advance:
        for number, rung in enumerate(trials.rungs, start=1):
            if number > 1:
                remaining = ranking.going_on(remaining, rung.combinations)
            for candidate in remaining:
                candidate.rung = number
                record = next(earlier, None)
                if record is None:
                    record = bench.trial(candidate, rung.targets)
                    lines.append(record)
                    advance(len(record["scores"]), "")
                elif (record["rung"], record["options"]) != (
                    number,
                    candidate.options,
                ) or any(len(row) != len(trials.steps) for row in record["scores"]):
                    raise DamagedFile(f"{lines.path}: not of this recipe; start a new run")
                candidate.take(record)
    if bench.cached:
        console.line(f"select: {bench.cached} conditionings from the cache")
    found = table(candidates, ranking, trials)
    if parts.ranks.first:
        write_json(folder.path / "select.json", sealed(found))
    chosen = ", ".join(f"{key}={value}" for key, value in found["chosen"].items())
    console.line(f"select: {chosen} (validation {found['score']:.4f}, {found['targets']} targets)")
    return resolved.with_values(found["chosen"]).recipe


class _Bench:
    """Conditions combinations on validation targets.

    Neighbours share what they fit alike; what each recalls is kept from rung to rung.
    """

    def __init__(
        self,
        resolved: ResolvedRecipe,
        parts: Parts,
        start: WarmStart,
        trials: Trials,
        console: Console,
    ):
        self.resolved, self.parts, self.start, self.trials = resolved, parts, start, trials
        self.console = console
        #: Conditionings that other runs had done.
        self.cached = 0
        self._recalled: dict[str, TargetScores | None] = {}
        self._keeps = parts.ranks.first
        assert parts.recipe.select is not None
        # Phase 1 validated on the first tasks of the split; selection takes the next ones.
        self._first = parts.recipe.meta_train.validation_targets
        self._targets = range(self._first, self._first + parts.recipe.select.targets)

    def trial(self, candidate: Candidate, targets: int) -> dict[str, Any]:
        """A line of ``select.jsonl``: the candidate's scores on further targets, up to
        ``targets``, or why it has none."""
        record = {"rung": candidate.rung, "options": candidate.options, "scores": []}
        try:
            scores = self._scores(candidate, targets)
        except NumericError as error:
            return {**record, "failed": one_line(error)}
        return {**record, "scores": scores[len(candidate.scores) :]}

    def _scores(self, candidate: Candidate, targets: int) -> Scores:
        """The candidate's scores on the first ``targets``, from the cache as far as it goes."""
        self.parts = self.parts.with_recipe(self._recipe(candidate.options))
        key = f"{self.parts.conditioning_key()}-{len(self._targets)}"
        path = self.parts.context.cache_dir / "select" / f"{key}.json"
        known = self.parts.ranks.from_first(lambda: self._known(path))
        have = len(candidate.scores)
        self.cached += max(0, min(len(known), targets) - have)
        if len(known) >= targets:
            return known[:targets]
        scores = max(known, candidate.scores, key=len)
        scores = [*scores, *self._condition(range(len(scores), targets))]
        if self._keeps:
            data = json.dumps(sealed({"scores": scores})).encode()
            keep(path, data, self._cache_of_no_use)
        return scores

    def _known(self, path: Path) -> Scores:
        """What another run left in the cache; nothing where its file is damaged."""
        with held(path) as there:
            if not there:
                return []
            try:
                found: Scores = read_json(path, TrialScores)["scores"]
            except DamagedFile:
                self.console.line(f"note: {path} is damaged, making it anew")
                return []
            return found

    def _cache_of_no_use(self, why: str) -> None:
        self._keeps = False
        self.console.line(why)

    def _recipe(self, options: dict[str, Any]) -> Recipe:
        steps = self.trials.steps
        values = {
            **options,
            STEPS: steps[-1],
            "condition.record_at": steps,
            "evaluate.controls": [],
            "evaluate.without_target_term": False,
        }
        return self.resolved.with_values(values).recipe

    def _condition(self, positions: range) -> Scores:
        """A row for each of the targets at ``positions``, a column for each J."""
        parts = self.parts
        evaluator = Evaluator(
            parts.recipe,
            parts.source,
            parts.inner,
            self.start,
            parts.bank_facts(self.start),
            self._recall(),
            "val",
            parts.workers,
            parts.batch,
            parts.ranks,
        )
        columns = [evaluator.record_at.index(step) for step in self.trials.steps]

        def rows() -> Scores:
            found = evaluator.run(self._targets[: positions.stop], positions.start)
            curves = (evaluated.record["curves"]["conditional"] for evaluated in found)
            return [[curve[column] for column in columns] for curve in curves]

        return parts.ranks.from_first(rows, meanwhile=rows)

    def _recall(self) -> TargetScores | None:
        """What every validation target recalls; a kernel is fitted once, whatever its rungs."""
        recipe = self.parts.recipe
        settings = recipe.condition.top_m, recipe.condition.negative
        fitted = [choice.model_dump(mode="json") for choice in (recipe.kernel, recipe.weighting)]
        key = json.dumps([*fitted, *settings])
        if key not in self._recalled:
            self._recalled[key] = self.parts.score("val", self._targets)
        return self._recalled[key]
