"""A run, from recipe to results: prepare, meta-train, select, score, evaluate, results.

Every stage is a function of what went in and leaves an artifact, so that a run that is
killed at any moment goes on from its folder and ends with the same bits.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from metaforge import (
    environment,
    evaluated,
    plugins,
    run_files,
    run_picture,
    said,
    selection,
    stages,
    stops,
)
from metaforge.arms import BankFacts
from metaforge.blame import told
from metaforge.components import Context
from metaforge.console import Console
from metaforge.creation import create
from metaforge.errors import (
    DataError,
    Interrupted,
    MetaforgeError,
    PluginError,
    Problem,
    RankLost,
    RecipeError,
    one_line,
)
from metaforge.metatrain import WarmStart
from metaforge.onlooker import Onlooker
from metaforge.ranks import ALONE, Ranks
from metaforge.recipe import ResolvedRecipe, load
from metaforge.recipe.overrides import Change, as_texts, parse_all
from metaforge.recipe.remarks import remarks
from metaforge.records import load_tensors, read_json, write_json
from metaforge.report import html, render_lines
from metaforge.rundir import RunDir
from metaforge.scoring import TargetScores
from metaforge.seals import sealed
from metaforge.warm_start import warm_start
from metaforge.workers import WorkerLost

#: The one key that a resumed run may change, as it changes no result.
_WORKERS = ("evaluate", "workers")


def run(resolved: ResolvedRecipe, *, quiet: bool = False, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Run a recipe in a new folder; what ``results.json`` holds, plus ``run_dir``.

    Each of several ``ranks`` calls it, and gets the same.
    """
    ranks.device(resolved.recipe.device)  # refused before there is a folder
    path = ranks.from_first(lambda: RunDir.create(resolved).path)
    return _Run(resolved, path, quiet, ranks).execute()


def resume(
    path: Path,
    changes: Change | Iterable[Change] = (),
    *,
    quiet: bool = False,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Go on with a run that was stopped; same bits as if it had not been.

    ``changes`` may set ``evaluate.workers``, which changes no bit. Raises ``RecipeError`` for
    those of any other key, and ``PluginError`` where what served the run is not here.
    """
    folder = RunDir.open(Path(path))
    values = _harmless(changes, folder.path)
    folder.recipe_text()  # refused where it is not what the run began with
    try:
        resolved = load(folder.path / "resolved.yaml", check=False)
    except MetaforgeError as error:
        if missing := environment.missing(folder.path):
            raise PluginError("\n".join([str(error), *missing])) from error
        raise
    resolved = resolved.with_values(values)
    return _Run(resolved, folder.path, quiet, ranks, resumed=True).execute()


def _harmless(changes: Change | Iterable[Change], path: Path) -> dict[str, Any]:
    """The changes by key; ``RecipeError`` where they would make it another run."""
    found = parse_all(as_texts(changes))
    others = [override for override in found if override.path != _WORKERS]
    if others:
        raise RecipeError(
            [
                Problem(
                    "",
                    "a run that is resumed may change evaluate.workers alone; for another run: "
                    f"metaforge run {path / 'resolved.yaml'} KEY=VALUE",
                    override.label,
                )
                for override in others
            ]
        )
    return {".".join(override.path): override.value for override in found}


class _Run:
    def __init__(
        self,
        resolved: ResolvedRecipe,
        path: Path,
        quiet: bool,
        ranks: Ranks,
        *,
        resumed: bool = False,
    ):
        self.resolved, self.recipe, self.ranks = resolved, resolved.recipe, ranks
        self.folder = RunDir(path) if ranks.first else Onlooker(path)
        self.resumed = resumed
        self.console = Console(quiet or not ranks.first, self.folder.log)
        self.stage = "prepare"
        self.trackers: list[Any] = []
        self.failed_observers: set[str] = set()
        self.notes: list[str] = []

    def execute(self) -> dict[str, Any]:
        # several ranks heed signals from their start to their end
        terminable = stops.terminable() if self.ranks.size == 1 else nullcontext()
        with self.folder.locked(), terminable, stages.threads_put_back():
            if self.resumed:
                ranks = f", {self.ranks.size} ranks" if self.ranks.size > 1 else ""
                self.folder.log(f"resumed by process {os.getpid()}{ranks}")
            try:
                found = self._stages()
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                shown = self._ended(self.ranks.verdict(told(error)))
                if shown is error:
                    raise
                raise shown from (None if isinstance(shown, Interrupted) else error)
            return {**found, "run_dir": str(self.folder.path)}

    def _ended(self, shown: BaseException) -> BaseException:
        """Say so in the folder; where it cannot be written, that is why the run ended. The
        error, with how the run goes on."""
        go_on = f"metaforge run --resume {self.folder.path}"
        stopped = getattr(shown, "exit_code", None) == Interrupted.exit_code
        state, why = "failed", str(shown) or type(shown).__name__
        if stopped:
            state, why = "interrupted", "by the user"
        with suppress(DataError):
            self._status(state, error=why)
            self.folder.log(f"{state} during {self.stage}: {why}")
        if isinstance(shown, Interrupted):
            return Interrupted(f"{shown} during {self.stage}; go on with: {go_on}")
        if isinstance(shown, WorkerLost):
            shown.args = (f"{shown}; go on with fewer: {go_on} evaluate.workers=1",)
        if isinstance(shown, RankLost):
            shown.args = (f"{shown}; go on with: {go_on}",)
        return shown

    def _status(self, state: str, **more: str) -> None:
        """A run that is resumed stays what it was, finished perhaps, until it really goes on."""
        if not (self.resumed and self.stage == "prepare"):
            self.folder.status(state, self.stage, **more)

    def _stages(self) -> dict[str, Any]:
        started = time.perf_counter()
        self._enter("prepare")
        parts = self._prepare()
        self._enter("meta-train")
        start = warm_start(parts, self.folder, self.console, self._observe)
        parts.theta_hat = start.theta
        if self.recipe.select is not None:
            self._enter("select")
            chosen = selection.select(self.resolved, parts, start, self.folder, self.console)
            parts = parts.with_recipe(chosen)
        facts = parts.bank_facts(start)
        self._enter("evaluate")
        records, scores = self._evaluate(parts, start, facts)
        self._enter("results")

        def finish() -> dict[str, Any]:
            shown = self.folder.picture
            self._spared(shown.name, lambda: run_picture.keep(shown, parts, records, scores))
            found = self._results(parts, facts, records, time.perf_counter() - started)
            self._spared("report.html", lambda: html.write_run(self.folder.path, found))
            self._observe("run_finished", run_dir=self.folder.path, results=found)
            self.folder.status("done", "results")
            for line in render_lines({**found, "notes": []}, self.folder.path):  # they stand above
                self.folder.log(line)
            return found

        return self.ranks.from_first(finish)

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self._status("running")

    def _prepare(self) -> stages.Parts:
        base = Context(
            base_dir=self.resolved.base_dir,
            report=self.console.line,
            progress=self.console.progress,
        )
        context = stages.context_for(self.recipe, base, self.ranks)
        env = environment.describe(self.recipe, context, self.ranks.size)
        if self.ranks.first:
            self.trackers = [create("tracker", choice, context) for choice in self.recipe.trackers]
            self._refuse_other_code(env)
        with self.ranks.leader_first():
            parts = stages.Parts.build(self.recipe, context, self.ranks)
        if self.recipe.select is None:
            parts.require_memory()
        selection.check(self.resolved, parts)
        self.folder.refuse_other_data(parts.source.fingerprint)
        same = {name: env[name] for name in ("metaforge", "engine_digest", "device", "threads")}
        same |= {"torch": env["packages"]["torch"], "data": parts.source.fingerprint}
        self.ranks.agree(lambda: same, "prepare")
        facts = {"run": str(self.folder.path), **said.header(self.recipe, parts)}
        facts["set"] = ", ".join(f"{key} {value}" for key, value in self.resolved.changes.items())
        self.console.header(facts)
        self.notes = [
            *self.resolved.notes,
            *remarks(self.resolved, parts.weighting),
            *said.notes(self.recipe, parts),
        ]
        for note in self.notes:
            self.console.line(f"note: {note}")
        self._observe("run_started", run_dir=self.folder.path, recipe=self.recipe)
        return parts

    def _refuse_other_code(self, env: dict[str, Any]) -> None:
        """Note what the run began with; ``PluginError`` if it resumes with other code."""
        path = self.folder.path / "env.json"
        if path.exists():
            environment.refuse_other_code(read_json(path, run_files.Env), env, self.folder.path)
        else:
            write_json(path, sealed(env))

    def _evaluate(
        self, parts: stages.Parts, start: WarmStart, facts: BankFacts
    ) -> tuple[list[dict[str, Any]], TargetScores | None]:
        """Every target's record, and what each recalls where it was computed here."""
        settings = parts.recipe.evaluate
        targets = range(settings.targets * settings.runs)
        observe = self._observe
        return evaluated.targets(
            parts, start, facts, targets, self.folder, self.console, self.ranks, observe
        )

    def _spared(self, what: str, make: Callable[[], object]) -> None:
        """Make what only shows results: where it fails, that is told and costs no result."""
        try:
            make()
        except Interrupted:
            raise
        except (Exception, SystemExit) as error:
            self.notes.append(f"{what}: not made: {one_line(error)}")
            self.console.line(f"note: {self.notes[-1]}")

    def _results(
        self,
        parts: stages.Parts,
        facts: BankFacts,
        records: list[dict[str, Any]],
        seconds: float,
    ) -> dict[str, Any]:
        table = self.folder.path / "select.json"
        selected = read_json(table, run_files.Selected) if self.recipe.select else None
        theta_hat = self.folder.artifacts / "theta_hat.safetensors"
        trained = load_tensors(theta_hat, run_files.MetaTrained)[1]
        timings = self.folder.lines("timings.jsonl").records
        found = evaluated.results_of(parts, facts, records, timings, trained, selected, seconds)
        found["notes"] = self.notes
        write_json(self.folder.path / "results.json", sealed(found))
        return found

    def _observe(self, event: str, **facts: Any) -> None:
        """Tell trackers of the recipe, then observer hooks of plugins, on the first rank.

        One that fails is told to the user and hears no more of this run: what only watches
        may not cost a result.
        """
        if not self.ranks.first:
            return
        trackers = [
            (f"tracker {choice.use!r}", getattr(tracker, event))
            for choice, tracker in zip(self.recipe.trackers, self.trackers, strict=True)
        ]
        for name, tell in (*trackers, *plugins.host().hearers(f"metaforge_{event}")):
            if name in self.failed_observers:
                continue
            try:
                tell(**copy.deepcopy(facts))
            except (Exception, SystemExit) as error:
                self.failed_observers.add(name)
                said = one_line(error) if name in one_line(error) else f"{name}: {one_line(error)}"
                self.notes.append(f"{said}; it heard no more of this run")
                self.console.line(f"note: {self.notes[-1]}")
