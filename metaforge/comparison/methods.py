"""Methods: runs that differ in nothing but their seed, and what to call them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaforge.comparison.runs import FinishedRun
from metaforge.recipe.document import flat

#: Keys that change no result: what the run is called and who is told of it.
IDLE = {"name", "output", "trackers", "evaluate.workers", "published"}
#: Keys that do not change what a method is: also where, by what and how often it runs.
_APART = {*IDLE, "seed", "device", "threads", "evaluate.batch"}


@dataclass(frozen=True)
class Method:
    """A row of the table: one run a seed, by seed."""

    label: str
    runs: tuple[FinishedRun, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)


def identity(recipe: Mapping[str, Any]) -> str:
    """Equal for two complete recipes of the same method, whatever their seed."""
    return _without(recipe, _APART)


def same_results(recipe: Mapping[str, Any]) -> str:
    """Equal for two complete recipes whose runs end with the same results."""
    return _without(recipe, IDLE)


def _without(recipe: Mapping[str, Any], keys: set[str]) -> str:
    options = {key: value for key, value in flat(recipe).items() if key not in keys}
    return json.dumps(options, sort_keys=True)


def grouped(runs: Iterable[FinishedRun]) -> list[Method]:
    """Methods in the order of their first run.

    A second run of the same method and seed (by other code, say) begins a row of its own.
    """
    rows: dict[tuple[str, int], dict[int, FinishedRun]] = {}
    for run in runs:
        name, copy = identity(run.recipe), 0
        while run.seed in rows.get((name, copy), {}):
            copy += 1
        rows.setdefault((name, copy), {})[run.seed] = run
    found = [tuple(by_seed[seed] for seed in sorted(by_seed)) for by_seed in rows.values()]
    return [Method(*pair) for pair in zip(_labels(found), found, strict=True)]


def _labels(rows: Sequence[Sequence[FinishedRun]]) -> list[str]:
    """What tells the rows apart: components, then other options, then the folder."""
    options = [flat(row[0].recipe) for row in rows]
    varying = [
        key
        for key in dict.fromkeys(key for row in options for key in row)
        if key not in _APART and len({_text(row.get(key)) for row in options}) > 1
    ]
    varying.sort(key=lambda key: (not key.endswith(".use"), key.count(".")))
    told: list[str] = []
    for key in varying:
        if _distinct(options, [*told, key]) > _distinct(options, told):
            told.append(key)
    labels = [
        ", ".join(_named(key, row[key]) for key in told if row.get(key) is not None) or row["name"]
        for row in options
    ]
    return [
        f"{label} ({row[0].path})" if labels.count(label) > 1 else label
        for label, row in zip(labels, rows, strict=True)
    ]


def _distinct(options: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({tuple(_text(row.get(key)) for key in keys) for row in options})


def _named(key: str, value: Any) -> str:
    return str(value) if key.endswith(".use") else f"{key}={_text(value)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
