"""Runs of several seeds are one row, and rows are called by what tells them apart."""

from __future__ import annotations

import pytest

from metaforge.comparison.methods import grouped
from metaforge.comparison.runs import read_runs

from .folders import write_run


def rows(tmp_path, *runs: tuple[str, ...]):
    paths = [write_run(tmp_path / f"run{i}", *overrides) for i, overrides in enumerate(runs)]
    return grouped(read_runs(paths))


def test_seeds_of_one_method_are_one_row_in_order(tmp_path):
    found = rows(
        tmp_path, ("seed=2",), ("seed=0", "weighting.use=uniform"), ("seed=0",), ("seed=1",)
    )
    assert [(row.label, row.seeds) for row in found] == [("tasml", (0, 1, 2)), ("uniform", (0,))]


@pytest.mark.parametrize(
    "same", ["output=elsewhere", "name=other", "device=cpu", "threads=1", "trackers=[]"]
)
def test_where_and_by_what_a_run_ran_makes_no_other_method(tmp_path, same):
    (row,) = rows(tmp_path, ("seed=0",), ("seed=1", same))
    assert row.seeds == (0, 1)


def test_workers_make_no_other_method(tmp_path):
    paths = [write_run(tmp_path / f"run{seed}", f"seed={seed}") for seed in (0, 1)]
    text = (paths[1] / "resolved.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("  workers:")]
    lines.insert(lines.index("evaluate:") + 1, "  workers: 7")
    (paths[1] / "resolved.yaml").write_text("\n".join(lines) + "\n")
    (row,) = grouped(read_runs(paths))
    assert row.seeds == (0, 1)


@pytest.mark.parametrize(
    "other", ["condition.steps=7", "kernel.use=laplace", "bank.size=100", "precision=float64"]
)
def test_every_other_option_makes_another_method(tmp_path, other):
    assert len(rows(tmp_path, ("seed=0",), ("seed=1", other))) == 2


LABELS = {
    "components": (
        [("weighting.use=uniform",), ("inner.use=ls",), ()],
        ["maml, uniform", "ls, tasml", "maml, tasml"],
    ),
    "no more than tells them apart": ([("inner.use=ls",), ()], ["ls", "maml"]),
    "an option": (
        [("condition.steps=7",), ("condition.steps=9",)],
        ["condition.steps=7", "condition.steps=9"],
    ),
    "component and option": (
        [("inner.use=ls",), ("inner.use=ls", "inner.ridge=2.0"), ()],
        ["ls, inner.ridge=0.1", "ls, inner.ridge=2.0", "maml"],
    ),
    "one method": ([("seed=1",), ("seed=2",)], ["small"]),
}


@pytest.mark.parametrize(("runs", "labels"), LABELS.values(), ids=LABELS)
def test_labels_tell_the_rows_apart(tmp_path, runs, labels):
    assert [row.label for row in rows(tmp_path, *runs)] == labels


def test_a_second_run_of_the_same_is_a_row_of_its_own(tmp_path):
    found = rows(tmp_path, ("seed=0",), ("seed=0",))
    assert [row.label for row in found] == [
        f"small ({tmp_path / 'run0'})",
        f"small ({tmp_path / 'run1'})",
    ]
