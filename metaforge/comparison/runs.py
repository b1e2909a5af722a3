"""Finished runs, read from their folders. Torch-free, and nothing is written there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from metaforge import run_files
from metaforge.errors import DataError, MetaforgeError
from metaforge.recipe.document import read
from metaforge.records import check, read_json, read_lines
from metaforge.rundir import RunDir

#: What a record of ``targets.jsonl`` says of the outcome; all else describes the episode.
_OUTCOME = {
    *("target", "task_id", "unconditional", "steps", "curves"),
    *("macro_accuracy", "skipped_steps", "weights"),
}
_SCORES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "unconditional": lambda record: record["unconditional"],
    "conditional": lambda record: record["curves"]["conditional"][-1],
}
#: Relative; the same arithmetic on the same records leaves no more.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class FinishedRun:
    """One run: its complete recipe as plain data, its results and a record for each target."""

    path: Path
    recipe: Mapping[str, Any]
    results: Mapping[str, Any]
    records: list[dict[str, Any]]
    #: Digest of the engine's source that made it.
    engine: str

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    def scores(self, name: str) -> dict[int, float]:
        """Each target's score by task id: ``unconditional``, or ``conditional`` after J steps."""
        return {r["task_id"]: _SCORES[name](r) for r in self.records}

    @cached_property
    def episodes(self) -> dict[int, str]:
        """For each target's task id a digest of the episode: its classes and samples."""
        return {record["task_id"]: _episode(record) for record in self.records}


def _episode(record: Mapping[str, Any]) -> str:
    described = {key: value for key, value in record.items() if key not in _OUTCOME}
    text = json.dumps(described, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read_runs(paths: Iterable[Path]) -> list[FinishedRun]:
    """The runs of these folders; ``DataError`` names every one that cannot be compared."""
    found, problems, seen = [], [], set()
    for path in paths:
        if path.resolve() in seen:
            problems.append(f"{path}: given twice")
            continue
        seen.add(path.resolve())
        try:
            found.append(_read(path))
        except MetaforgeError as error:
            problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))
    return found


def _read(path: Path) -> FinishedRun:
    folder = RunDir.open(path)
    run = FinishedRun(
        path=path,
        results=folder.results,
        recipe=_recipe(folder),
        records=read_lines(path / "targets.jsonl", run_files.Target),
        engine=read_json(path / "env.json", run_files.Env)["engine_digest"],
    )
    _refuse_contradiction(run)
    return run


def _recipe(folder: RunDir) -> dict[str, Any]:
    path = folder.path / "resolved.yaml"
    data = read(folder.recipe_text(), str(path)).data
    check(str(path), json.dumps(data), run_files.MadeRecipe)
    return data


def _refuse_contradiction(run: FinishedRun) -> None:
    """``DataError`` where the targets' records are not those that the results tell of."""
    if not run.records:
        raise DataError(f"{run.path / 'targets.jsonl'}: damaged: it holds no target")
    if len(run.episodes) != len(run.records):
        raise DataError(f"{run.path / 'targets.jsonl'}: damaged: a target is there twice")
    for name in _SCORES:
        told, scores = run.results[name], list(run.scores(name).values())
        mean = sum(scores) / len(scores)
        near = abs(told["mean"] - mean) <= _TOLERANCE * max(1.0, abs(mean))
        if told["n"] != len(scores) or not near:
            raise DataError(
                f"{run.path}: damaged: results.json tells of {told['n']} targets with {name} "
                f"mean {told['mean']:.6g}, targets.jsonl holds {len(scores)} with {mean:.6g}"
            )
