"""The laws of trackers, as checks a plugin's own tests can call."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from metaforge.contracts import Tracker
from metaforge.recipe.schema import Recipe
from metaforge.records import write_json
from metaforge.testing.law import Law

RECIPE = Recipe.model_validate(
    {"name": "small", "data": {"use": "sinusoids"}, "inner": {"use": "maml"}}
)
METRICS = {"validation": 0.5, "loss": 1.25}


def record(target: int) -> dict[str, Any]:
    """A target's record as a run tells it."""
    arms = ("conditional", "uniform_bank")
    return {
        "target": target,
        "task_id": target,
        "group": None,
        "unconditional": 0.4 + target / 100,
        "steps": [0, 5],
        "curves": {arm: [0.4 + target / 100, 0.5 + target / 50] for arm in arms},
        "weights": {"effective_sample_size": 3.0},
    }


def results() -> dict[str, Any]:
    """The parts of ``results.json`` that say how a run ended."""

    def of(mean: float) -> dict[str, Any]:
        return {"mean": mean, "sd": 0.1, "n": 2, "ci95": [mean - 0.1, mean + 0.1]}

    return {
        "metric": "accuracy (higher is better)",
        "recipe": "small",
        "steps": 5,
        "unconditional": of(0.4),
        "conditional": of(0.5),
        "difference": {**of(0.1), "p": 0.5},
        "controls": {"uniform_bank": of(0.45)},
        "curve": {
            "steps": [0, 5],
            "mean": {"conditional": [0.4, 0.5], "uniform_bank": [0.4, 0.45]},
        },
    }


def tracker_laws(make: Callable[[], Tracker]) -> list[Law]:
    """Every law; a tracker is made anew for each."""
    return [
        Law("a whole run", lambda: check_whole_run(make())),
        Law("a resumed run", lambda: check_resumed_run(make)),
        Law("arguments untouched", lambda: check_untouched(make())),
    ]


def check_whole_run(tracker: Tracker) -> None:
    """It hears every event of a run, in their order, without an error, and answers none."""
    with _folder() as folder:
        _told(tracker, folder, targets=range(3))


def check_resumed_run(make: Callable[[], Tracker]) -> None:
    """A run that is stopped and goes on in another process, with a step and a target told
    twice, is heard without an error."""
    with _folder() as folder:
        first, second = make(), make()
        with _law("a resumed run"):
            first.run_started(run_dir=folder, recipe=RECIPE)
            first.meta_step(step=10, metrics=METRICS)
            first.target_evaluated(record=record(0))
        _told(second, folder, targets=range(2), law="a resumed run")


def check_untouched(tracker: Tracker) -> None:
    """What it is told stays as it was."""
    with _folder() as folder:
        metrics, row, found = dict(METRICS), record(0), results()
        before = copy.deepcopy((metrics, row, found))
        tracker.run_started(run_dir=folder, recipe=RECIPE)
        tracker.meta_step(step=0, metrics=metrics)
        tracker.target_evaluated(record=row)
        tracker.run_finished(run_dir=folder, results=found)
        assert (metrics, row, found) == before, "arguments untouched: it changed what it was told"


def _told(tracker: Tracker, folder: Path, targets: range, law: str = "a whole run") -> None:
    events: list[tuple[str, dict[str, Any]]] = [
        ("run_started", {"run_dir": folder, "recipe": RECIPE}),
        *(("meta_step", {"step": step, "metrics": METRICS}) for step in (0, 10, 20)),
        *(("target_evaluated", {"record": record(target)}) for target in targets),
        ("run_finished", {"run_dir": folder, "results": results()}),
    ]
    for name, facts in events:
        with _law(f"{law}: {name}"):
            answer = getattr(tracker, name)(**facts)
        assert answer is None, f"{law}: {name} answers {answer!r}, and nobody hears it"


@contextmanager
def _law(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error


@contextmanager
def _folder() -> Iterator[Path]:
    """A run's folder, as trackers find it; what they write relative to the working folder goes
    beside it."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        path = Path(folder, "runs", "20260101T000000Z-small-000000")
        path.mkdir(parents=True)
        for name in ("recipe.yaml", "resolved.yaml"):
            (path / name).write_text("name: small\n")
        for name in ("env.json", "results.json"):
            write_json(path / name, {})
        yield path
