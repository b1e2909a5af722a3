"""The figures of a comparison: a row a method, and each row against the first.

Two kinds of spread are kept apart: intervals are over targets, for the learners that were
trained; ``seed_sd`` is the standard deviation (n - 1) over seeds of the runs' means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from metaforge import results, statistics
from metaforge.comparison.methods import Method
from metaforge.comparison.runs import FinishedRun

#: A target by what it is: seed, task id and a digest of its samples.
Target = tuple[int, int, str]

METHOD = (
    f"{statistics.METHOD}; targets of all seeds together, p not adjusted for the number of rows; "
    "seed sd: standard deviation (n-1) over seeds of the runs' means, each seed with a training "
    "and targets of its own"
)
_COMPARED = ("unconditional", "conditional")


def tabulate(methods: Sequence[Method]) -> dict[str, Any]:
    """All figures, as ``comparison.json`` holds them; scores and differences as measured."""
    runs = [run for method in methods for run in method.runs]
    rows = [_row(method) for method in methods]
    for method, row in zip(methods[1:], rows[1:], strict=True):
        row["minus_first"] = {name: _against(method, methods[0], name) for name in _COMPARED}
    return {
        "metric": runs[0].results["metric"],
        "split": runs[0].results["split"],
        "seeds": sorted({run.seed for run in runs}),
        "statistics": METHOD,
        "methods": rows,
        "notes": [*_told(runs, "notes"), *_other_code(runs)],
        "warnings": _told(runs, "warnings"),
    }


def _row(method: Method) -> dict[str, Any]:
    pooled = [record for run in method.runs for record in run.records]
    recipe = method.runs[0].recipe
    return {
        "method": method.label,
        **{section: recipe[section]["use"] for section in ("inner", "kernel", "weighting")},
        "runs": [{"seed": run.seed, "path": str(run.path)} for run in method.runs],
        **results.figures(pooled),
        "seed_sd": _seed_sd(method),
        "steps": sorted({run.results["steps"] for run in method.runs}),
        "meta_train_steps": sorted({run.results["meta_train"]["steps"] for run in method.runs}),
        "seconds_per_target": _mean(
            run.results["seconds"]["per_target"]["conditional"] for run in method.runs
        ),
        "minus_first": None,
        "published": _published(method),
    }


def _published(method: Method) -> list[dict[str, Any]]:
    """What the runs' own results tell of others' figures, each entry once."""
    told = [entry for run in method.runs for entry in run.results.get("published", ())]
    return [entry for place, entry in enumerate(told) if entry not in told[:place]]


def _seed_sd(method: Method) -> dict[str, float | None]:
    """Of the runs' means, and of the means of their paired differences."""
    before, after = (
        [_mean(run.scores(name).values()) for run in method.runs] for name in _COMPARED
    )
    gain = [b - a for a, b in zip(before, after, strict=True)]
    return {"unconditional": _sd(before), "conditional": _sd(after), "difference": _sd(gain)}


def _against(method: Method, first: Method, score: str) -> dict[str, Any]:
    """The paired difference to the first method on the targets that both have.

    Targets are joined by what they are, never by their place in the files.
    """
    common = common_scores(method, first, score)
    by_seed: dict[int, list[float]] = {}
    for target, (own, other) in common.items():
        by_seed.setdefault(target[0], []).append(own - other)
    return {
        **statistics.paired(*([pair[k] for pair in common.values()] for k in (0, 1))),
        "seed_sd": _sd([_mean(values) for values in by_seed.values()]),
    }


def common_scores(method: Method, first: Method, score: str) -> dict[Target, tuple[float, float]]:
    """The method's score and the first's of every target that both have, in the first's order."""
    own, other = _scores(method, score), _scores(first, score)
    return {target: (own[target], value) for target, value in other.items() if target in own}


def _scores(method: Method, score: str) -> dict[Target, float]:
    return {
        (run.seed, task_id, run.episodes[task_id]): value
        for run in method.runs
        for task_id, value in run.scores(score).items()
    }


def _sd(means: Sequence[float]) -> float | None:
    """Over seeds; None for a single one."""
    return statistics.summary(means)["sd"]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _told(runs: Sequence[FinishedRun], key: str) -> list[str]:
    """What the runs' own results say, each thing once."""
    return list(dict.fromkeys(text for run in runs for text in run.results[key]))


def _other_code(runs: Sequence[FinishedRun]) -> list[str]:
    count = len({run.engine for run in runs})
    return [f"the runs were made by {count} versions of the engine's code"] if count > 1 else []
