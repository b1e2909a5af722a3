"""Whole runs by each solver of tasml: what is refused and when, resuming, the factor's cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import metaforge
from metaforge import factors, memory, warm_start
from metaforge.cli import main
from metaforge.errors import DataError, NumericError, RecipeError
from metaforge.pipeline import resume
from metaforge.recipe import load
from tests.small import SMALL

SOLVERS = {
    "exact": [],
    "float32": [],
    "cg": ["weighting.rank=20"],
    "nystrom": ["weighting.rank=200"],
}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("METAFORGE_FACTORS", raising=False)


def run(solver: str, *changes: str) -> dict:
    overrides = [f"weighting.solver={solver}", *SOLVERS[solver], "meta_train.steps=20", *changes]
    return metaforge.run(SMALL, *overrides, quiet=True)


def without_clock(results: dict) -> dict:
    return {k: v for k, v in results.items() if k not in ("seconds", "run_dir")}


@pytest.fixture(scope="module")
def exact(tmp_path_factory) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("exact")
        patch.chdir(folder)
        patch.setenv("METAFORGE_CACHE", str(folder / "cache"))
        return run("exact")


@pytest.mark.parametrize("solver", ["float32", "cg", "nystrom"])
def test_a_run_that_is_cut_short_ends_with_the_same_results(solver: str, exact: dict) -> None:
    """And with those of the exact solver, to what a score's eighth digit does to a figure."""
    results = run(solver)
    path = Path(results["run_dir"])
    for targets in (5, 12):  # cut short among the targets, and after them
        lines = (path / "targets.jsonl").read_text().splitlines(keepends=True)
        (path / "targets.jsonl").write_text("".join(lines[:targets]))
        (path / "results.json").unlink()
        assert without_clock(resume(path, quiet=True)) == without_clock(results)
    mean = exact["conditional"]["mean"]
    assert results["conditional"]["mean"] == pytest.approx(mean, rel=1e-4)
    recorded = json.loads((path / "results.json").read_text())["fits"]["weighting"]
    assert recorded == results["fits"]["weighting"]
    if solver != "nystrom":
        assert recorded["residual"] <= 1e-8
        assert recorded["iterations"] >= 1


def test_what_the_matrix_does_not_allow_ends_the_run_with_what_to_do(capsys) -> None:
    path = Path("mine.yaml")
    path.write_text(
        load(
            SMALL, ["weighting.solver=float32", "weighting.lambda=1e-8", "kernel.sigma=100"]
        ).to_yaml()
    )
    assert main(["run", str(path), "meta_train.steps=20"]) == NumericError.exit_code
    said = capsys.readouterr().err
    assert "not positive definite in float32" in said
    assert "take weighting.solver: exact, or a larger weighting.lambda" in said
    assert "Traceback" not in said


REFUSED = {
    "unread": (["weighting.rank=5"], "weighting: solver: exact does not read rank"),
    "too many": (
        ["weighting.solver=nystrom", "weighting.rank=201"],
        "weighting: rank: 201 is more than bank.size: 200, whose tasks it counts: take at most 200",
    ),
    "too many in a grid": (
        ["weighting.solver=cg", "select.grid.weighting.rank=[200, 201]"],
        "select.grid.weighting.rank: 201: rank: 201 is more than bank.size: 200",
    ),
    "no solver": (["weighting.solver=flaot32"], "weighting.solver: should be 'exact', 'float32'"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_by_validate(changes: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(SMALL, changes)
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


GRIDS = {
    "chosen": [],
    "tried": ["weighting.solver=nystrom", "select.grid.weighting.solver=[exact, nystrom]"],
    "beside a grid": ["select.grid.condition.top_m=[3, 5]"],
}


@pytest.mark.parametrize("changes", GRIDS.values(), ids=GRIDS)
def test_memory_is_asked_for_before_phase_1(changes, monkeypatch) -> None:
    """A trained learner that cannot be scored would be hours lost."""
    monkeypatch.setattr(memory, "available", lambda device: 10**5)
    monkeypatch.setattr(warm_start, "MetaTrainer", None)  # would fail if it were called
    # 40 features of the tasks fit, 200 x 200 numbers do not
    with pytest.raises(DataError, match=r"the matrix of task kernel.*bank.size: 200 tasks takes"):
        metaforge.run(SMALL, *changes, "kernel.use=gaussian", quiet=True)


def test_a_base_that_selection_replaces_needs_no_memory(monkeypatch) -> None:
    """nystrom of as many landmarks as tasks takes 960 kB, exact 320 kB."""
    monkeypatch.setattr(memory, "available", lambda device: 500_000)
    changes = ["weighting.solver=nystrom", "kernel.frequencies=20", "meta_train.steps=20"]
    with pytest.raises(DataError, match=r"solver: nystrom for bank.size: 200 tasks takes"):
        metaforge.run(SMALL, *changes, quiet=True)
    grid = ["select.grid.weighting.solver=[exact]", "select.targets=4"]
    results = metaforge.run(SMALL, *changes, *grid, quiet=True)
    assert results["selected"]["weighting.solver"] == "exact"


def test_a_second_run_takes_the_factor_from_the_cache(monkeypatch) -> None:
    monkeypatch.setattr(factors, "LEAST_TASKS", 100)
    first = run("exact", "condition.top_m=7")
    second = run("exact", "condition.top_m=7")
    monkeypatch.setenv("METAFORGE_FACTORS", "0")
    without = run("exact", "condition.top_m=7")
    said = [(Path(r["run_dir"]) / "log.txt").read_text() for r in (first, second, without)]
    assert ["the factor of the bank's matrix from the cache" in text for text in said] == [
        False,
        True,
        False,
    ]
    assert without_clock(first) == without_clock(second) == without_clock(without)
    resumed = Path(second["run_dir"])
    (resumed / "targets.jsonl").write_text("")
    shutil.rmtree("cache")
    assert without_clock(resume(resumed, quiet=True)) == without_clock(first)
