"""Unlike runs are refused with every difference; forced, the table says so."""

from __future__ import annotations

import re

import pytest

from metaforge import comparison
from metaforge.errors import DataError

from .folders import records, write_run


def pair(tmp_path, *overrides: str, **different):
    one = write_run(tmp_path / "one")
    return [one, write_run(tmp_path / "two", "weighting.use=uniform", *overrides, **different)]


def moved(found):
    found["task"]["fingerprint"] = "f" * 32


DIFFERENCES = {
    "ways": ({"task": {"outputs": 20}}, (), "ways: 5 in .*one; 20 in .*two"),
    "shots": ({"task": {"shots": 1}}, (), "shots: 5 in .*one; 1 in .*two"),
    "queries": ({"task": {"queries": 5}}, (), "queries: 15 in .*one; 5 in .*two"),
    "fingerprint": ({"change": moved}, (), "data fingerprint at seed 0: 0{12} in .*; f{12} in "),
    "data set": ({"task": {"data": "arrays"}}, (), "data set: glyphs in .*; arrays in "),
    "transductive": (
        {"change": lambda found: found.update(transductive=True)},
        (),
        "transductive: no in .*; yes in ",
    ),
    "split": ({}, ("evaluate.split=val",), "split: test in .*; val in "),
    "targets": (
        {"targets": records(0, 0.0, range(1, 13))},
        (),
        r"targets at seed 0: 0\.\.11 in .*; 1\.\.12 in ",
    ),
    "number of targets": (
        {"targets": records(0, 0.0, range(13))},
        (),
        "number of targets: 12 in .*; 13 in ",
    ),
    "samples": (
        {"targets": [{**r, "support": [[99]]} for r in records(0, 0.0)]},
        (),
        "samples of the targets: 12 of 12 differ between .*one and .*two",
    ),
    "steps": ({}, ("condition.steps=300",), r"condition\.steps: 6 in .*; 300 in "),
    "meta-training": ({}, ("meta_train.steps=90",), r"meta_train\.steps: 60 in .*; 90 in "),
    "seeds": (
        {"targets": records(1, 0.0)},
        ("seed=1",),
        "seeds: 0 in tasml; 1 in uniform",
    ),
}


@pytest.mark.parametrize(("different", "overrides", "line"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_unlike_runs_are_refused_and_forced_ones_stamped(tmp_path, different, overrides, line):
    paths = pair(tmp_path, *overrides, **different)
    with pytest.raises(DataError, match=line) as caught:
        comparison.compare_runs(paths)
    assert "--force" in str(caught.value)
    assert list(tmp_path.glob("*compare*")) == []
    found = comparison.compare_runs(paths, force=True)
    assert any(re.search(line, difference) for difference in found["unlike"])


def test_like_runs_are_not_refused_whatever_the_method(tmp_path):
    found = comparison.compare_runs(pair(tmp_path, "inner.use=ls", "kernel.use=laplace"))
    assert found["unlike"] == []


def test_every_difference_is_told_at_once(tmp_path):
    paths = pair(tmp_path, "condition.steps=300", task={"shots": 1, "outputs": 2})
    with pytest.raises(DataError) as caught:
        comparison.compare_runs(paths)
    told = [line.split(":")[0].strip() for line in str(caught.value).splitlines()]
    assert {"ways", "shots", "condition.steps"} <= set(told)


def test_many_runs_are_named_briefly(tmp_path):
    paths = [write_run(tmp_path / f"s{s}", f"seed={s}") for s in range(5)]
    others = [
        write_run(tmp_path / f"o{s}", f"seed={s}", "weighting.use=uniform", task={"shots": 1})
        for s in range(5)
    ]
    with pytest.raises(DataError, match=r"shots: 5 in .*s0, .*s1, .*s2 and 2 more; 1 in "):
        comparison.compare_runs([*paths, *others])


def test_steps_chosen_on_validation_are_as_many_as_were_offered(tmp_path):
    select = "select={grid: {condition.steps: [0, 3, 6]}, targets: 5}"

    def chosen(found):
        found["steps"] = 3

    two = write_run(tmp_path / "two", "weighting.use=uniform", select, change=chosen)
    found = comparison.compare_runs([write_run(tmp_path / "one"), two])
    assert [row["steps"] for row in found["methods"]] == [[6], [3]]


def test_accuracy_is_never_beside_squared_error(tmp_path):
    def squared(found):
        found["metric"] = "mean squared error (lower is better)"

    paths = pair(tmp_path, change=squared)
    with pytest.raises(DataError, match=r"cannot be compared: metric: accuracy .*; mean squared"):
        comparison.compare_runs(paths, force=True)
