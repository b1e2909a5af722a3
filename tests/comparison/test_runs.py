"""Finished runs are read and left alone; all others are named in one error."""

from __future__ import annotations

import json
import re

import pytest

from metaforge import comparison
from metaforge.comparison.runs import read_runs
from metaforge.errors import DataError
from metaforge.report import render_text
from metaforge.seals import sealed

from .folders import read_lines, write_json, write_lines, write_run


def test_a_finished_run_is_read_and_nothing_is_written_there(tmp_path):
    path = write_run(tmp_path / "run", "seed=3", gain=0.1)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    (run,) = read_runs([path])
    assert run.seed == 3
    assert len(run.records) == 12
    assert run.scores("conditional")[4] == run.records[4]["curves"]["conditional"][-1]
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_run_of_before_there_were_seals_is_shown_with_a_note(tmp_path):
    path = write_run(tmp_path / "run")
    note = "note: results.json has no seal, as an earlier version wrote it"
    assert note in render_text(path)
    found = json.loads((path / "results.json").read_text())
    write_json(path / "results.json", sealed(found))
    assert note not in render_text(path)


def _edit(name, change):
    def damage(path):
        found = json.loads((path / name).read_text())
        change(found)
        write_json(path / name, found)

    return damage


def _edit_records(change):
    def damage(path):
        write_lines(path / "targets.jsonl", change(read_lines(path / "targets.jsonl")))

    return damage


def _cut(name):
    def damage(path):
        (path / name).write_bytes((path / name).read_bytes()[:-20])

    return damage


def _other_score(records):
    records[2]["curves"]["conditional"][-1] += 0.01
    return records


DAMAGE = {
    "interrupted": (
        lambda path: write_json(
            path / "status.json", {"state": "interrupted", "stage": "evaluate"}
        ),
        r"unfinished \(interrupted, in evaluate\); go on with: metaforge run --resume .*run",
    ),
    "no status": (lambda path: (path / "status.json").unlink(), "status.json: no such file"),
    "no recipe": (lambda path: (path / "resolved.yaml").unlink(), "not a run folder"),
    "a cut recipe": (
        lambda path: (path / "resolved.yaml").write_text("name: [small"),
        "resolved.yaml:1: not readable as YAML",
    ),
    "no results": (lambda path: (path / "results.json").unlink(), "results.json: no such file"),
    "cut results": (_cut("results.json"), "results.json: not readable as JSON"),
    "results without a key": (
        _edit("results.json", lambda found: found.pop("transductive")),
        "damaged, or made by another version .*transductive",
    ),
    "results of another kind": (
        lambda path: write_json(path / "results.json", [1]),
        "damaged, or made by another version",
    ),
    "no targets": (lambda path: (path / "targets.jsonl").unlink(), "targets.jsonl: cannot be read"),
    "a cut target": (_cut("targets.jsonl"), "targets.jsonl: line 12 is cut short, or not JSON"),
    "an empty file": (_edit_records(lambda records: []), "it holds no target"),
    "a missing target": (
        _edit_records(lambda records: records[:-1]),
        "tells of 12 targets .*, targets.jsonl holds 11",
    ),
    "a target twice": (
        _edit_records(lambda records: [*records[:-1], records[0]]),
        "a target is there twice",
    ),
    "a status that is null": (
        lambda path: write_json(path / "status.json", None),
        r"status\.json: damaged, .*it: should be keys and values; found null",
    ),
    "an environment without keys": (
        lambda path: write_json(path / "env.json", {}),
        r"env\.json: damaged, .*engine_digest: required",
    ),
    "a number that is a word": (
        _edit("results.json", lambda found: found["unconditional"].update(mean="much")),
        r'results\.json: damaged, .*unconditional\.mean: should be a valid number; found "much"',
    ),
    "notes that are a number": (
        _edit("results.json", lambda found: found.update(notes=3)),
        r"results\.json: damaged, .*notes: should be a (valid )?list; found 3",
    ),
    "a target that is a number": (
        _edit_records(lambda records: [3, *records]),
        r"targets\.jsonl: line 1: damaged, .*it: should be keys and values; found 3",
    ),
    "a curve that is too short": (
        _edit_records(lambda records: [{**records[0], "steps": [0, 3, 6]}, *records[1:]]),
        "targets.jsonl: line 1: damaged, .*2 values of conditional for 3 steps",
    ),
    "results nested beyond reading": (
        lambda path: (path / "results.json").write_text("[" * 100_000),
        "results.json: not readable as JSON",
    ),
    "a section that is a number": (
        lambda path: (path / "resolved.yaml").write_text(
            re.sub(r"condition:\n(  .*\n)+", "condition: 3\n", (path / "resolved.yaml").read_text())
        ),
        r"resolved\.yaml: damaged, .*condition: should be keys and values; found 3; make",
    ),
    "another score": (_edit_records(_other_score), "tells of 12 targets with conditional mean"),
    "a record without scores": (
        _edit_records(lambda records: [{"task_id": 0}]),
        "damaged, or made by another version",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_unfinished_or_damaged_is_named(tmp_path, damage, message):
    good, path = write_run(tmp_path / "good"), write_run(tmp_path / "run")
    damage(path)
    held = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(DataError, match=message) as caught:
        comparison.compare_runs([good, path], force=True)
    assert str(path) in str(caught.value)
    assert str(good) not in str(caught.value)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == held


@pytest.mark.parametrize("figure", [3, "x", None, [], {"mean": 1}])
def test_a_report_of_wrong_types_tells_them_too(tmp_path, figure):
    path = write_run(tmp_path / "run")
    assert "unconditional" in render_text(path)
    _edit("results.json", lambda found: found.update(difference=figure))(path)
    with pytest.raises(DataError, match=r"results\.json: damaged, .*difference"):
        render_text(path)


def test_all_bad_runs_are_told_at_once(tmp_path):
    with pytest.raises(DataError) as caught:
        read_runs([tmp_path / "a", tmp_path / "b"])
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    ]


def test_a_run_given_twice_is_no_second_run(tmp_path):
    path = write_run(tmp_path / "run")
    with pytest.raises(DataError, match="given twice"):
        read_runs([path, tmp_path / "." / "run"])
