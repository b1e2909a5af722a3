"""The runs behind docs/results.md: planned, made once, and their figures on the page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from metaforge import statistics
from metaforge.errors import DataError
from metaforge.recipe import load
from studies import figures, page, plan, runs
from studies.plan import Cell
from tests.small import SMALL


def run(seed: int, curves: dict[str, list[list[float]]]) -> Any:
    """A finished run's records: each arm's scores at J = 0 and J = 5, target by target."""
    n = len(next(iter(curves.values())))
    records = [
        {
            "task_id": i,
            "unconditional": curves["conditional"][i][0],
            "steps": [0, 5],
            "curves": {arm: values[i] for arm, values in curves.items()},
            "weights": {"own_group": 0.5 if i else None},
        }
        for i in range(n)
    ]
    return SimpleNamespace(seed=seed, records=records)


TWO = [
    run(0, {"conditional": [[0.1, 0.5], [0.2, 0.7]], "oracle": [[0.1, 0.6], [0.2, 0.9]]}),
    run(1, {"conditional": [[0.3, 0.4], [0.4, 0.9]], "oracle": [[0.3, 0.8], [0.4, 1.0]]}),
]


def test_scores_are_of_all_seeds_by_target() -> None:
    assert figures.scores(TWO, "conditional") == {
        (0, 0): 0.5,
        (0, 1): 0.7,
        (1, 0): 0.4,
        (1, 1): 0.9,
    }
    assert figures.scores(TWO, "conditional", 0) == figures.scores(TWO, "unconditional")
    assert figures.scores(TWO, "random_m") == {}
    assert figures.recalled(TWO) == 0.5


def test_differences_are_paired_by_target_whatever_the_order() -> None:
    own, best = (figures.scores(TWO, arm) for arm in ("conditional", "oracle"))
    shuffled = dict(reversed(best.items()))
    del shuffled[(0, 0)]
    found = figures.difference(own, shuffled)
    assert found == statistics.paired([0.7, 0.4, 0.9], [0.9, 0.8, 1.0])
    assert figures.difference(own, {}) is None


def test_a_share_is_of_the_gain_over_the_control() -> None:
    rng = np.random.default_rng(0)
    control = {(0, i): float(value) for i, value in enumerate(rng.normal(size=200))}
    noise = rng.normal(size=(2, 200)) * 0.1
    best = {key: value + 2.0 + noise[0, key[1]] for key, value in control.items()}
    own = {key: value + 1.5 + noise[1, key[1]] for key, value in control.items()}
    found = figures.share(own, best, control)
    assert found["mean"] == pytest.approx(0.75, abs=0.02)
    assert found["ci95"][0] < 0.75 < found["ci95"][1]
    assert figures.share(own, control, control) is None


def test_every_cell_is_a_recipe(monkeypatch, tmp_path) -> None:
    """Data that are not here are the one thing that may be amiss."""
    monkeypatch.setenv("METAFORGE_DATA", str(tmp_path))
    cells = list(plan.every())
    assert len(cells) == len(set(cells))
    for cell in cells:
        resolved = load(runs.ROOT / cell.recipe, list(cell.changes), check=False)
        assert resolved.recipe.name == cell.data
        assert f"{cell.data}.yaml" in cell.command
        assert resolved.recipe.inner.use == cell.learner


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A tree with one small recipe in it, and the runs of two of its cells."""
    folder = tmp_path / "recipes" / "results"
    folder.mkdir(parents=True)
    sections = {
        **SMALL,
        "name": "sinusoids",
        "evaluate": {
            "targets": 12,
            "controls": ["random_m", "oracle"],
            "without_target_term": True,
        },
    }
    (folder / "sinusoids.yaml").write_text(yaml.safe_dump(sections))
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    monkeypatch.setattr(plan, "learners", lambda: [Cell("sinusoids", "maml")])
    return tmp_path


def test_runs_are_made_once_and_the_page_tells_their_figures(small, monkeypatch) -> None:
    made = runs.Runs(small / "runs")
    cell = Cell("sinusoids", "maml")
    for seed in plan.SEEDS:
        made.make(cell, seed)
    paths = [one.path for one in made.found(cell)]
    again = runs.Runs(small / "runs")
    monkeypatch.setattr(runs.pipeline, "run", None)  # would fail if it were called
    for seed in plan.SEEDS:
        again.make(cell, seed)
    assert [one.path for one in again.found(cell)] == paths
    assert [one.seed for one in again.found(cell)] == list(plan.SEEDS)

    monkeypatch.setattr(plan, "every", lambda: iter([cell]))
    monkeypatch.setattr(plan, "DATA", {"sinusoids": "regression"})
    monkeypatch.setattr(plan, "COMPARED", "sinusoids")
    monkeypatch.setattr(plan, "steps", lambda: [cell])
    for part in ("signatures", "banks"):
        monkeypatch.setattr(plan, part, list)
    monkeypatch.setattr(plan, "BANKS", ())
    target = small / "docs" / "results.md"
    page.write(again, target)
    text = target.read_text()
    assert "{{" not in text
    assert "3 of 3 runs are there" in text
    got = figures.ratio(
        figures.scores(again.found(cell), "conditional"),
        figures.scores(again.found(cell), "random_m"),
    )
    assert f"| random_m | {got['mean']:.3f} [" in text
    assert text.count("\n| 6 | ") == 1  # J
    assert (small / "docs" / "results" / "steps.svg").exists()


def test_a_page_without_runs_is_not_written(small, monkeypatch) -> None:
    monkeypatch.setattr(plan, "every", lambda: iter([Cell("sinusoids", "maml")]))
    target = small / "results.md"
    target.write_text("the page as it stands")
    with pytest.raises(DataError, match="no finished run of the plan"):
        page.write(runs.Runs(small / "runs"), target)
    assert target.read_text() == "the page as it stands"


def test_a_run_that_was_stopped_goes_on(small) -> None:
    cell, folder = Cell("sinusoids", "maml"), small / "runs"
    made = runs.Runs(folder)
    made.make(cell, 0)
    (first,) = made.found(cell)
    whole = (first.path / "targets.jsonl").read_bytes()
    (first.path / "targets.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    (first.path / "status.json").write_text('{"state": "interrupted", "stage": "evaluate"}')
    again = runs.Runs(folder)
    assert again.found(cell) == []
    again.make(cell, 0)
    (one,) = again.found(cell)
    assert one.path == first.path
    assert (one.path / "targets.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "content"),
    [("results.json", b"{"), ("targets.jsonl", b'{"target": 0'), ("resolved.yaml", b"\xff\xfe")],
)
def test_a_damaged_run_is_left_out_and_made_anew(small, name, content) -> None:
    cell, folder = Cell("sinusoids", "maml"), small / "runs"
    made = runs.Runs(folder)
    made.make(cell, 0)
    (one,) = made.found(cell)
    (one.path / name).write_bytes(content)
    said: list[str] = []
    again = runs.Runs(folder, said.append)
    assert again.found(cell) == []
    assert len(said) == 1
    assert f"{one.path} is left out" in said[0]
    again.make(cell, 0)
    (other,) = again.found(cell)
    assert other.path != one.path
    assert other.records == one.records


def test_plots_have_the_same_bytes_twice(tmp_path) -> None:
    from studies import plots

    for name in ("a", "b"):
        plots.over_steps({"two": TWO}, tmp_path / name / "steps.svg")
    made = [(tmp_path / name / "steps.svg").read_bytes() for name in ("a", "b")]
    assert made[0] == made[1]
    assert b"steps J" in made[0]
