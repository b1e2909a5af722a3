"""A finished run evaluated on other frozen targets, or with other settings: nothing is trained."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metaforge import evaluated, run_files, said, stages
from metaforge.components import Context
from metaforge.console import Console
from metaforge.errors import Problem, RecipeError
from metaforge.learner.runs import parts_of, resolved_of
from metaforge.recipe import ResolvedRecipe
from metaforge.recipe.overrides import Change, as_texts, parse_all
from metaforge.recipe.schema import Recipe
from metaforge.records import load_tensors, read_json, whole_folder, write_json
from metaforge.rundir import RunDir
from metaforge.seals import sealed, sealed_text

#: Sections of a recipe that phase 1 does not read.
_FREE = ("evaluate", "condition")
#: Ids of targets are below it.
_MOST_IDS = 2**62


def evaluate(
    run: str | Path,
    *changes: Change,
    split: str | None = None,
    targets: int | None = None,
    first: int | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Evaluate the run in a folder; what ``results.json`` holds, plus ``run_dir``.

    split    ``test`` or ``val``; default: the run's
    targets  how many; default: the run's
    first    id of the first; default 0, and of val the first that neither meta-training nor
             selection looked at
    changes  of ``evaluate.*`` and ``condition.*`` alone

    The folder is ``RUN/evaluations/<stamp>-<split>-<targets>``, whole or absent. Raises
    ``RecipeError`` for other changes, ``DataError`` for what is no finished run.
    """
    folder = RunDir.open(Path(run))
    trained_with = folder.results  # of a finished run alone
    began = time.perf_counter()
    resolved = _changed(folder, changes, split, targets)
    console = Console(quiet)
    told = Context(resolved.recipe.seed, report=console.line, progress=console.progress)
    with stages.threads_put_back():
        parts, start = parts_of(resolved, folder, told)
        recipe = parts.recipe
        original = resolved_of(folder.path).recipe
        ids = _ids(recipe, original, first)
        notes = [*said.notes(recipe, parts), *_used(recipe, original, ids)]
        if changes and recipe.evaluate.split == "test":
            notes.append(
                "settings other than the run's, on test targets: choose among them on --split val"
            )
        for line in notes:
            console.line(f"note: {line}")
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{stamp}-{recipe.evaluate.split}-{len(ids)}"
        path = _free(folder.path / "evaluations", name)
        with whole_folder(path) as part:
            facts = parts.bank_facts(start)
            records, _ = evaluated.targets(parts, start, facts, ids, RunDir(part), console)
            theta_hat = folder.artifacts / "theta_hat.safetensors"
            found = evaluated.results_of(
                parts,
                facts,
                records,
                RunDir(part).lines("timings.jsonl").records,
                load_tensors(theta_hat, run_files.MetaTrained)[1],
                trained_with.get("selection"),
                time.perf_counter() - began,
            )
            found |= {"notes": notes, "first_target": ids.start, "of_run": folder.path.name}
            write_json(part / "results.json", sealed(found))
            (part / "resolved.yaml").write_text(sealed_text(resolved.to_yaml()))
    return {**found, "run_dir": str(path)}


def _ids(recipe: Recipe, original: Recipe, first: int | None) -> range:
    """The targets, from ``first`` on, or from where they begin by default."""
    looked_at = _looked_at(original) if recipe.evaluate.split == "val" else 0
    begin = looked_at if first is None else first
    if not 0 <= begin < _MOST_IDS:
        raise RecipeError(f"first is {begin}; expected an id, 0 or more, below {_MOST_IDS}")
    return range(begin, begin + recipe.evaluate.targets * recipe.evaluate.runs)


def _free(parent: Path, name: str) -> Path:
    """A folder that is not there: of this name, or with a number after it."""
    names = (name, *(f"{name}-{copy}" for copy in range(2, 1000)))
    return next(parent / one for one in names if not (parent / one).exists())


def _changed(
    folder: RunDir, changes: Iterable[Change], split: str | None, targets: int | None
) -> ResolvedRecipe:
    """The run's recipe with what it selected, and the changes. ``RecipeError`` for others."""
    overrides = parse_all(as_texts(tuple(changes)))
    if wrong := [one for one in overrides if one.path[0] not in _FREE]:
        raise RecipeError(
            [
                Problem(
                    "",
                    "eval changes evaluate.* and condition.* alone; anything else is "
                    f"another run: metaforge run {folder.path / 'resolved.yaml'}",
                    one.label,
                )
                for one in wrong
            ]
        )
    values: dict[str, Any] = {}
    resolved = resolved_of(folder.path)
    if resolved.recipe.select is not None:
        values |= read_json(folder.path / "select.json", run_files.Selected)["chosen"]
    values |= {".".join(one.path): one.value for one in overrides}
    values |= {} if split is None else {"evaluate.split": split}
    values |= {} if targets is None else {"evaluate.targets": targets}
    return resolved.with_values({**values, "select": None})


def _looked_at(original: Recipe) -> int:
    """Validation targets that meta-training and selection looked at: the first so many."""
    selected = original.select.targets if original.select is not None else 0
    return original.meta_train.validation_targets + selected


def _used(recipe: Recipe, original: Recipe, ids: range) -> list[str]:
    """A line where targets are those of the run, or of val some that the run was chosen by."""
    own = original.evaluate
    count = own.targets * own.runs
    if recipe.evaluate.split == own.split and ids.start < count:
        return [
            f"{min(ids.stop, count) - ids.start} of the {len(ids)} targets are the run's own; "
            f"further ones: --first {count}"
        ]
    if recipe.evaluate.split != "val" or ids.start >= _looked_at(original):
        return []
    used = min(ids.stop, _looked_at(original)) - ids.start
    return [
        f"{used} of the {len(ids)} validation targets are some that meta-training or selection "
        "looked at: figures on them are too good"
    ]
