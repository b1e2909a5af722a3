"""Runs that were made before, and may be taken again: same recipe, data and code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from metaforge import environment, registry, run_files, stages
from metaforge.comparison.methods import identity
from metaforge.comparison.runs import read_runs
from metaforge.components import Context
from metaforge.errors import DataError, MetaforgeError, PluginError
from metaforge.recipe import ResolvedRecipe
from metaforge.recipe.document import read
from metaforge.records import read_json
from metaforge.rundir import RunDir


class Earlier(NamedTuple):
    """A run's folder; one that is not finished can be resumed."""

    path: Path
    finished: bool


class EarlierRuns:
    """Looks for runs in the output folders of recipes; tells of those it has to leave."""

    def __init__(self, report: Callable[[str], None]):
        self._report = report
        self._fingerprints: dict[str, str] = {}
        self._made: dict[Path, dict[str, Any]] = {}

    def find(self, resolved: ResolvedRecipe) -> Earlier | None:
        """The newest finished run of this recipe, or else the newest to go on with."""
        wanted = resolved.recipe.model_dump(mode="json", by_alias=True)
        same = [path for path in _folders(resolved) if _alike(self._recipe(path), wanted)]
        if not same:
            return None
        with stages.threads_put_back():
            context = stages.context_for(resolved.recipe, Context(base_dir=resolved.base_dir))
            env = environment.describe(resolved.recipe, context)
        unfinished = None
        for path in same:
            try:
                reason, finished = self._outdated(path, resolved, context, env), _is_done(path)
            except DataError as error:
                reason, finished = str(error), False
            if reason:
                self._report(f"note: {path} is not taken again: {reason}")
            elif finished:
                return Earlier(path, True)
            else:
                unfinished = unfinished or Earlier(path, False)
        return unfinished

    def _recipe(self, path: Path) -> dict[str, Any]:
        """A run's complete recipe; empty if it is half written, so no run of any."""
        if path not in self._made:
            try:
                text = RunDir(path).recipe_text()
                self._made[path] = read(text, str(path)).data
            except MetaforgeError:
                self._made[path] = {}
        return self._made[path]

    def _outdated(
        self, path: Path, resolved: ResolvedRecipe, context: Context, env: dict[str, Any]
    ) -> str:
        """Why a run of the same recipe is none of today's; a run that has barely begun is."""
        if (path / "env.json").exists():
            try:
                before = read_json(path / "env.json", run_files.Env)
                if before.get("ranks", 1) != env["ranks"]:
                    return f"{before['ranks']} ranks made it, whose last bits are their own"
                environment.refuse_other_code(before, env, path)
            except PluginError:
                return "other code, threads or device made it"
        data = path / "artifacts" / "data.json"
        if data.exists():
            before = read_json(data, run_files.Data)
            if before["fingerprint"] != self._fingerprint(resolved, context):
                return "its data have changed"
        return ""

    def _fingerprint(self, resolved: ResolvedRecipe, context: Context) -> str:
        """Of the recipe's data as they are now; loaded once for all runs on them."""
        data = resolved.recipe.data
        key = json.dumps([data.model_dump(mode="json"), context.seed, context.dtype])
        if key not in self._fingerprints:
            source = registry.create_choice("dataset", data, context)
            self._fingerprints[key] = source.fingerprint
        return self._fingerprints[key]


def _folders(resolved: ResolvedRecipe) -> list[Path]:
    """Runs of recipes of this name, the newest first."""
    recipe = resolved.recipe
    found = Path(recipe.output).glob(f"*-{recipe.name}-*/resolved.yaml")
    return sorted((path.parent for path in found), reverse=True)


def _alike(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return made.get("seed") == wanted["seed"] and identity(made) == identity(wanted)


def _is_done(path: Path) -> bool:
    """``DataError`` for one that says so and cannot be read whole."""
    status = path / "status.json"
    done = status.exists() and read_json(status, run_files.Status)["state"] == "done"
    if done:
        read_runs([path])
    return done
