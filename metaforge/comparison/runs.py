"""Finished runs, read from their folders. Torch-free, and nothing is written there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from metaforge.errors import DataError, MetaforgeError, one_line
from metaforge.recipe.document import read
from metaforge.records import read_json, read_lines
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
#: What of ``results.json`` a comparison reads, beside the figures.
_NEEDED = (
    *("metric", "split", "transductive", "steps", "meta_train.steps", "notes", "warnings"),
    *("task.data", "task.kind", "task.outputs", "task.shots", "task.queries", "task.fingerprint"),
    "seconds.per_target.conditional",
)
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
    status = read_json(path / "status.json")
    try:
        if status["state"] != "done":
            raise DataError(
                f"{path}: unfinished ({status['state']}, in {status['stage']}); go on with: "
                f"metaforge run --resume {path}"
            )
        written = (path / "resolved.yaml").read_text(encoding="utf-8")
        run = FinishedRun(
            path=path,
            recipe=read(written, str(path / "resolved.yaml")).data,
            results=folder.results,
            records=read_lines(path / "targets.jsonl"),
            engine=read_json(path / "env.json")["engine_digest"],
        )
        for key in _NEEDED:
            reduce(getitem, key.split("."), run.results)
        _refuse_contradiction(run)
    except (TypeError, ValueError, LookupError, AttributeError, OSError) as error:
        raise DataError(
            f"{path}: damaged, or made by another version ({one_line(error)}); make it anew: "
            f"metaforge run {path / 'resolved.yaml'}"
        ) from error
    return run


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
