"""``eval``: a finished run on other frozen targets, with nothing trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaforge.cli import main
from metaforge.errors import DataError, RecipeError
from metaforge.learner import evaluate as module
from metaforge.learner.evaluate import evaluate


def lines(folder):
    return (Path(folder) / "targets.jsonl").read_text().splitlines()


def test_the_runs_own_targets_have_the_runs_own_bits(made):
    for name in ("ls", "selected", "regression"):
        run, _ = made(name)
        found = evaluate(run, targets=6, quiet=True)
        assert lines(found["run_dir"])[:4] == lines(run)
        assert found["conditional"]["n"] == 6
        assert found["of_run"] == run.name
        assert "4 of the 6 targets are the run's own; further ones: --first 4" in found["notes"]
        assert Path(found["run_dir"]).parent == run / "evaluations"
        kept = json.loads((Path(found["run_dir"]) / "results.json").read_text())
        assert kept["conditional"] == found["conditional"]


def test_other_settings_and_the_table(made, capsys):
    run, _ = made("ls")
    words = [str(run), "condition.steps=0", "--targets", "3", "--first", "4", "--quiet", "--json"]
    assert main(["eval", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["difference"]["mean"] == 0
    assert [json.loads(line)["task_id"] for line in lines(found["run_dir"])] == [4, 5, 6]
    assert main(["eval", str(run), "--targets", "3"]) == 0
    told = capsys.readouterr()
    assert "tiny: accuracy, %, test targets" in told.out


def test_validation_targets_are_those_that_nothing_was_chosen_by(made):
    run, _ = made("selected")
    found = evaluate(run, split="val", targets=3, quiet=True)
    first = json.loads(lines(found["run_dir"])[0])["task_id"]
    assert first == found["first_target"] == 6 + 3  # of meta-training, and of selection
    assert not any("too good" in note for note in found["notes"])
    assert any("not a test result" in note for note in found["notes"])
    again = evaluate(run, split="val", targets=3, first=8, quiet=True)
    assert any("1 of the 3 validation targets" in note for note in again["notes"])


def test_other_changes_are_another_run(made):
    run, _ = made("ls")
    with pytest.raises(RecipeError, match=r"inner\.ridge=1': eval changes evaluate") as found:
        evaluate(run, "inner.ridge=1", "bank.size=3", quiet=True)
    assert found.value.count == 2
    with pytest.raises(RecipeError, match="first is -1"):
        evaluate(run, first=-1, quiet=True)


def test_a_bundle_and_an_unfinished_run_are_told(made, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="not a run folder"):
        evaluate(tmp_path)
    run, _ = made("ls")
    before = sorted((run / "evaluations").iterdir()) if (run / "evaluations").exists() else []

    def fails(*_):
        raise OSError(28, "full")

    monkeypatch.setattr(module, "write_json", fails)
    with pytest.raises(DataError, match="cannot write: full"):
        evaluate(run, targets=2, quiet=True)
    left = sorted((run / "evaluations").iterdir()) if (run / "evaluations").exists() else []
    assert left == before
