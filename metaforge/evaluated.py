"""Phase 4 as a stage: targets evaluated into a folder, and the results that come of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from metaforge import results, said, stages
from metaforge.arms import BankFacts
from metaforge.console import Console
from metaforge.evaluation import Evaluator
from metaforge.metatrain import WarmStart
from metaforge.ranks import ALONE, Ranks
from metaforge.rundir import RunDir
from metaforge.scoring import TargetScores
from metaforge.verdict import verdict

Observe = Callable[..., None]


def _unseen(event: str, **facts: Any) -> None:
    """Nobody watches."""


def targets(
    parts: stages.Parts,
    start: WarmStart,
    facts: BankFacts,
    ids: range,
    folder: RunDir,
    console: Console,
    ranks: Ranks = ALONE,
    observe: Observe = _unseen,
) -> tuple[list[dict[str, Any]], TargetScores | None]:
    """The record of every target of ``ids``, those that the folder has not yet computed; and what
    each recalls, where it was computed here."""
    split = parts.recipe.evaluate.split
    records, timings = folder.lines("targets.jsonl"), folder.lines("timings.jsonl")
    done = min(len(records.records), len(timings.records))
    # What is conditioned at once is done again at once: the bits are those of the batch.
    records.truncate(done - done % parts.batch if done < len(ids) else done)
    timings.truncate(len(records.records))
    done = ranks.from_first(lambda: len(records.records))
    scores = parts.score(split, ids) if done < len(ids) else None
    evaluator = Evaluator(
        parts.recipe,
        parts.source,
        parts.inner,
        start,
        facts,
        scores,
        split,
        parts.workers,
        parts.batch,
        ranks,
    )
    with console.stage("targets", len(ids), done) as advance:
        for one in evaluator.run(ids, done):
            records.append(one.record)
            timings.append(one.seconds)
            observe("target_evaluated", record=one.record)
            advance(1, "")
    return records.records, scores


def results_of(
    parts: stages.Parts,
    facts: BankFacts,
    records: list[dict[str, Any]],
    timings: list[dict[str, float]],
    trained: dict[str, Any],
    selected: dict[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    """What ``results.json`` holds, but for notes. ``trained`` is what phase 1 said of itself,
    ``selected`` what selection did, ``seconds`` what this process took."""
    recipe, regression = parts.recipe, parts.source.shape.kind == "regression"
    found = results.compute(recipe, records, regression)
    found |= {
        "recipe": recipe.name,
        "split": recipe.evaluate.split,
        "task": said.task_facts(parts),
        "steps": recipe.condition.steps,
        "meta_train": trained,
        "transductive": said.is_transductive(parts),
        "inner": {"use": recipe.inner.use, **parts.inner.describe()},
        "fits": said.fit_facts(parts, facts),
        "selected": selected and selected["chosen"],
        "selection": selected,
        "seconds": {
            "this_process": seconds,
            "per_target": {
                arm: statistics.fmean([t[arm] for t in timings if arm in t])
                for arm in found["curve"]["mean"]
            },
        },
    }
    found["verdict"] = verdict(recipe, records, regression, found["fits"])
    found["warnings"] += said.training_warning(trained)
    found["warnings"] += said.kernel_warning(found["fits"])
    found["warnings"] += said.ranking_warning(found["fits"], records)
    found["warnings"] += selected["warnings"] if selected else []
    return found
