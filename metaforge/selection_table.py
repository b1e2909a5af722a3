"""What selection tried, ranked: whom a rung takes on, which is chosen, and the table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaforge.errors import NumericError
from metaforge.recipe.schema import Recipe
from metaforge.recipe.trials import STEPS, Trials

#: A grid of fewer values has no edge that says anything.
_FEWEST_VALUES = 3


@dataclass(eq=False)
class Candidate:
    """A combination and its scores so far: a row a target, a column a J."""

    options: dict[str, Any]
    scores: list[list[float]] = field(default_factory=list)
    #: The last rung that it took part in, from 1.
    rung: int = 0
    failed: str | None = None

    def take(self, record: Mapping[str, Any]) -> None:
        """Add what a line of ``select.jsonl`` says."""
        self.failed = record.get("failed")
        self.scores = [*self.scores, *record["scores"]]

    def means(self, targets: int | None = None) -> list[float]:
        """The mean over the first targets, or all so far, after each J."""
        return np.mean(self.scores[:targets], axis=0).tolist()


@dataclass(frozen=True)
class Ranking:
    """Orders candidates by their best mean over J; ties keep the order that they come in."""

    steps: Sequence[int]
    lower_is_better: bool

    def best(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those with scores, the best first."""
        sound = [candidate for candidate in candidates if not candidate.failed]
        return sorted(sound, key=lambda one: self._cost(self.figure(one)[1]))

    def going_on(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The best ``count``, in the order that they come in."""
        best = self.best(candidates)[:count]
        return [candidate for candidate in candidates if candidate in best]

    def figure(self, candidate: Candidate) -> tuple[int, float]:
        """The J with the best mean, the first if several tie, and that mean."""
        pairs = zip(self.steps, candidate.means(), strict=True)
        return min(pairs, key=lambda pair: self._cost(pair[1]))

    def _cost(self, mean: float) -> float:
        return mean if self.lower_is_better else -mean


def table(candidates: Sequence[Candidate], ranking: Ranking, trials: Trials) -> dict[str, Any]:
    """What ``select.json`` holds; those of later rungs come first, however they did before.

    Raises ``NumericError`` where no candidate is left to be chosen.
    """
    last = len(trials.rungs)
    ranked = [
        candidate
        for rung in range(last, 0, -1)
        for candidate in ranking.best([one for one in candidates if one.rung == rung])
    ]
    failed = [candidate for candidate in candidates if candidate.failed]
    if not ranked or ranked[0].rung < last:
        raise NumericError(
            f"select: none of the {len(candidates)} combinations has finite scores on every "
            f"validation target; the first that failed, {failed[0].options}: {failed[0].failed}"
        )
    steps, score = ranking.figure(ranked[0])
    chosen = {**ranked[0].options, STEPS: steps}
    return {
        "split": "val",
        "targets": trials.rungs[-1].targets,
        "in_grid": trials.in_grid,
        "conditionings": sum(len(candidate.scores) for candidate in candidates),
        "rungs": [rung._asdict() for rung in trials.rungs],
        "chosen": chosen,
        "score": score,
        "tried": [
            _row(rank, candidate, ranked[0], ranking, last)
            for rank, candidate in enumerate([*ranked, *failed], start=1)
        ],
        "warnings": list(_edges(trials.recipe, chosen)),
    }


def _row(
    rank: int, candidate: Candidate, chosen: Candidate, ranking: Ranking, last: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": rank,
        "options": candidate.options,
        "steps": None,
        "mean": None,
        "minus_chosen": None,
        "targets": len(candidate.scores),
        "dropped_in_rung": candidate.rung if candidate.failed or candidate.rung < last else None,
        "failed": candidate.failed,
    }
    if candidate.failed:
        return row
    steps, mean = ranking.figure(candidate)
    beside = chosen.means(len(candidate.scores))[ranking.steps.index(ranking.figure(chosen)[0])]
    curve = dict(zip(map(str, ranking.steps), candidate.means(), strict=True))
    return {**row, "steps": steps, "mean": mean, "minus_chosen": mean - beside, "curve": curve}


def _edges(recipe: Recipe, chosen: Mapping[str, Any]) -> Iterator[str]:
    """A line for each chosen number that ends its grid, where the grid could go on."""
    assert recipe.select is not None
    for key, values in recipe.select.grid.items():
        numbers = {value for value in values if type(value) in (int, float)}
        value = chosen[key]
        if len(numbers) < _FEWEST_VALUES or value not in (min(numbers), max(numbers)):
            continue
        everything = key == "condition.top_m" and value >= recipe.bank.size
        if value == 0 or everything:
            continue  # no option that is selected goes below 0, and no M beyond the bank
        end = "least" if value == min(numbers) else "greatest"
        yield (
            f"selection chose {key}: {value}, the {end} value tried: one beyond it may do better; "
            f"widen select.grid.{key}"
        )
