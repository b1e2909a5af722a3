"""Whether runs may be compared: every difference that would make a gain mean something else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from metaforge.comparison.methods import Method
from metaforge.comparison.runs import FinishedRun
from metaforge.errors import DataError
from metaforge.recipe.document import flat

_STEPS = "condition.steps"
_META_STEPS = "meta_train.steps"
#: Options that decide, with those of the data, which targets there are.
_TARGETS = ("evaluate.split", "evaluate.targets", "evaluate.runs")
#: Run folders that a difference names for each value.
_NAMED = 3


def refuse_other_metric(runs: Sequence[FinishedRun]) -> None:
    """``DataError`` for accuracies beside squared errors: no table can hold both."""
    metrics = _by_value((str(run.path), run.results["metric"]) for run in runs)
    if len(metrics) > 1:
        raise DataError(f"cannot be compared: {_difference('metric', metrics)}")


def differences(methods: Sequence[Method], varied: Collection[str] = ()) -> list[str]:
    """Each difference in a line, with who has which value.

    ``varied`` are the recipe keys whose values are what is compared: more steps are then
    no hidden advantage, but the question.
    """
    runs = [run for method in methods for run in method.runs]
    found = unequal({str(run.path): _facts(run, varied) for run in runs})
    for seed in sorted({run.seed for run in runs}):
        same_seed = [run for run in runs if run.seed == seed]
        found += unequal({str(run.path): _seed_facts(run) for run in same_seed})
        found += _other_episodes(same_seed)
    return found + unequal({method.label: {"seeds": _words(method.seeds)} for method in methods})


def planned_differences(
    recipes: Mapping[str, Mapping[str, Any]], varied: Collection[str]
) -> list[str]:
    """What the complete recipes alone tell will make their runs unlike, before any is made."""
    facts = {}
    for label, recipe in recipes.items():
        options = flat(recipe)
        shaping = [key for key in options if key.startswith("data.") or key in _TARGETS]
        facts[label] = {key: options[key] for key in shaping} | _steps(recipe, varied)
    return unequal(facts)


def _steps(recipe: Mapping[str, Any], varied: Collection[str]) -> dict[str, int]:
    """J, or the most steps that selection on validation targets may choose, and phase 1's."""
    grid = (recipe.get("select") or {}).get("grid", {})
    steps = {
        _STEPS: max(grid.get(_STEPS, [recipe["condition"]["steps"]])),
        _META_STEPS: recipe["meta_train"]["steps"],
    }
    return {key: count for key, count in steps.items() if key not in varied}


def _facts(run: FinishedRun, varied: Collection[str]) -> dict[str, Any]:
    task = run.results["task"]
    return {
        "kind of task": task["kind"],
        "ways" if task["kind"] == "classification" else "outputs": task["outputs"],
        "shots": task["shots"],
        "queries": task["queries"],
        "data set": task["data"],
        "split": run.results["split"],
        "transductive": "yes" if run.results["transductive"] else "no",
        "number of targets": len(run.records),
        **_steps(run.recipe, varied),
    }


def _seed_facts(run: FinishedRun) -> dict[str, Any]:
    """What depends on the seed, as every task does."""
    return {
        f"data fingerprint at seed {run.seed}": run.results["task"]["fingerprint"][:12],
        f"targets at seed {run.seed}": _words(sorted(run.episodes)),
    }


def _other_episodes(runs: Sequence[FinishedRun]) -> list[str]:
    """Targets that carry the same id in two runs, and are made of other samples."""
    first = runs[0]
    found = []
    for run in runs[1:]:
        shared = first.episodes.keys() & run.episodes.keys()
        count = sum(first.episodes[i] != run.episodes[i] for i in shared)
        if count:
            found.append(
                f"samples of the targets: {count} of {len(shared)} differ between "
                f"{first.path} and {run.path}"
            )
    return found


def unequal(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each fact that not all of ``{who: facts}`` share."""
    names = dict.fromkeys(name for known in facts.values() for name in known)
    found = []
    for name in names:
        values = _by_value((who, known.get(name, "none")) for who, known in facts.items())
        if len(values) > 1:
            found.append(_difference(name, values))
    return found


def _by_value(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for who, value in pairs:
        values.setdefault(str(value), []).append(who)
    return values


def _difference(name: str, values: Mapping[str, list[str]]) -> str:
    parts = []
    for value, holders in values.items():
        more = len(holders) - _NAMED
        named = ", ".join(holders[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"{value} in {named}")
    return f"{name}: {'; '.join(parts)}"


def _words(numbers: Sequence[int]) -> str:
    """Numbers in order, a run of consecutive ones as its ends."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
