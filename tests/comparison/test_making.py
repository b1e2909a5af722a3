"""Grids that are run: what is there is taken again, what was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import metaforge
from metaforge import registry
from metaforge.comparison.runs import _OUTCOME
from metaforge.components import Context
from metaforge.errors import NumericError
from metaforge.recipe import load
from tests import sealed

from .folders import RECIPE, read_lines, write_json

OVER = {"weighting.use": ["tasml", "uniform"]}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def compare(*overrides, over=OVER, **options):
    return metaforge.compare(RECIPE, *overrides, over=over, quiet=True, **options)


def runs() -> list[Path]:
    return sorted(path.parent for path in Path("runs").glob("*/resolved.yaml"))


def told(found) -> dict:
    return {key: value for key, value in found.items() if key != "out"}


def test_a_grid_trains_shared_stages_once_and_pairs_within_a_seed(capsys):
    found = metaforge.compare(RECIPE, over=OVER, seeds=[0, 1])
    assert "not taken again" not in capsys.readouterr().err, "a run of another seed is another run"
    assert [row["method"] for row in found["methods"]] == ["tasml", "uniform"]
    assert all([run["seed"] for run in row["runs"]] == [0, 1] for row in found["methods"])
    assert found["unlike"] == []
    tasml, uniform = found["methods"]
    assert uniform["minus_first"]["conditional"]["n"] == 24
    assert uniform["minus_first"]["unconditional"]["mean"] == 0.0, "one theta_hat, same targets"
    assert tasml["seed_sd"]["conditional"] > 0
    logs = {run["path"]: Path(run["path"], "log.txt") for run in uniform["runs"]}
    assert all("meta-train: from the cache" in log.read_text() for log in logs.values())


def test_the_same_command_again_runs_nothing_and_gives_the_same_bytes():
    first = compare(out="first")
    made = {file: file.stat().st_mtime_ns for file in Path("runs").rglob("*")}
    second = compare(out="second")
    assert {file: file.stat().st_mtime_ns for file in Path("runs").rglob("*")} == made
    for name in ("comparison.json", "comparison.csv", "comparison.md"):
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
    assert told(first) == told(second)


def test_only_what_is_missing_is_run():
    path = metaforge.run(RECIPE, "weighting.use=uniform", "threads=1")["run_dir"]
    found = compare()
    assert found["methods"][1]["runs"][0]["path"] == path
    assert len(runs()) == 2
    compare(over={"weighting.use": ["uniform"], "condition.steps": [6, 8]})
    assert len(runs()) == 3


def test_a_stopped_run_goes_on_to_the_same_table():
    whole = compare()
    path = Path(whole["methods"][1]["runs"][0]["path"])
    lines = (path / "targets.jsonl").read_text().splitlines(keepends=True)
    (path / "targets.jsonl").write_text("".join(lines[:5]))
    (path / "results.json").unlink()
    write_json(path / "status.json", {"state": "interrupted", "stage": "evaluate"})
    made = runs()
    again = compare()
    assert runs() == made
    assert read_lines(path / "targets.jsonl") == [json.loads(line) for line in lines]
    for row in (*whole["methods"], *again["methods"]):
        del row["seconds_per_target"]
    assert whole["methods"] == again["methods"]


STALE = {
    "code": ("env.json", lambda found: found.update(engine_digest="0")),
    "a component": ("env.json", lambda found: found["components"]["data"].update(source="0")),
    "threads": ("env.json", lambda found: found.update(threads=99)),
    "data": ("artifacts/data.json", lambda found: found.update(fingerprint="0" * 32)),
}


@pytest.mark.parametrize(("name", "change"), STALE.values(), ids=STALE)
@pytest.mark.parametrize("state", ["done", "interrupted"])
def test_runs_of_other_code_or_data_are_not_taken(name, change, state, capsys):
    over = {"condition.steps": [6]}
    first = compare(over=over)
    path = Path(first["methods"][0]["runs"][0]["path"])
    sealed.change(path / name, change)
    write_json(path / "status.json", {"state": state, "stage": "results"})
    again = metaforge.compare(RECIPE, over=over)
    assert again["methods"][0]["runs"][0]["path"] != str(path)
    assert f"note: {path} is not taken again: " in capsys.readouterr().err


def _write(name, text):
    return lambda path: (path / name).write_text(text)


DAMAGE = {
    "status null": ("done", _write("status.json", "null")),
    "env without keys": ("done", _write("env.json", "{}")),
    "data a list": ("done", _write("artifacts/data.json", "[1]")),
    "results of wrong types": ("done", _write("results.json", '{"metric": 3}')),
    "results not there": ("done", lambda path: (path / "results.json").unlink()),
    "targets of wrong types": ("done", _write("targets.jsonl", "3\n")),
    "stopped, targets of wrong types": ("failed", _write("targets.jsonl", '{"target": 0}\n')),
    "stopped, timings of wrong types": ("failed", _write("timings.jsonl", '{"a": "b"}\n')),
}


@pytest.mark.parametrize(("state", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_is_left_with_a_note(state, damage, capsys):
    over = {"condition.steps": [2]}
    path = Path(compare(over=over)["methods"][0]["runs"][0]["path"])
    write_json(path / "status.json", {"state": state, "stage": "results"})
    damage(path)
    capsys.readouterr()
    again = metaforge.compare(RECIPE, over=over)
    assert again["methods"][0]["runs"][0]["path"] != str(path)
    assert f"note: {path} is not taken again: " in capsys.readouterr().err


def test_an_error_says_which_run_it_stopped_and_what_was_made_is_kept():
    over = {"inner.lr": [0.01, 1e30]}
    with pytest.raises(NumericError, match=r"run 2 of 2: inner\.lr=1e\+30: .*not finite"):
        compare(over=over)
    assert len(runs()) == 2


def test_what_describes_an_episode_is_what_its_source_says():
    path = Path(metaforge.run(RECIPE)["run_dir"])
    recipe = load(RECIPE).recipe
    source = registry.create_choice("dataset", recipe.data, Context(seed=recipe.seed))
    for record in sealed.records(path / "targets.jsonl"):
        described = {key: value for key, value in record.items() if key not in _OUTCOME}
        assert described == source.describe_task("test", record["task_id"])


def test_runs_can_be_compared_from_python_by_their_folders():
    paths = [
        metaforge.run(RECIPE, f"kernel.use={name}")["run_dir"] for name in ("laplace", "linear")
    ]
    found = metaforge.compare(*paths, out="table")
    assert [row["method"] for row in found["methods"]] == ["laplace", "linear"]
    assert Path("table", "comparison.md").exists()
