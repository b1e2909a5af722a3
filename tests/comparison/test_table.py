"""Figures are paired by target; seed spread and interval over targets are kept apart."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from metaforge import comparison, statistics
from metaforge.comparison import table
from metaforge.comparison.methods import Method, grouped
from metaforge.comparison.runs import read_runs

from .folders import records, write_run

GAIN = 0.05


def methods(tmp_path, **other) -> list[Method]:
    """Two methods on seeds 0 and 1; the second adds ``GAIN``, its targets in ``other`` order."""
    paths = [write_run(tmp_path / f"a{seed}", f"seed={seed}") for seed in (0, 1)]
    for seed in (0, 1):
        ids = other.get("ids", range(12))
        targets = records(seed, GAIN, ids, salt=7)
        overrides = (f"seed={seed}", "weighting.use=uniform")
        paths.append(write_run(tmp_path / f"b{seed}", *overrides, targets=targets))
    return grouped(read_runs(paths))


def check_pairing(against) -> None:
    """The law: levels, which vary far more than methods do, cancel in the differences."""
    found = against["figure"]
    assert found["mean"] == pytest.approx(GAIN, abs=0.01)
    assert found["sd"] < 0.03
    assert found["n"] == against["n"]


def by_target(one: Method, first: Method):
    return table._against(one, first, "conditional")


def by_row_order(one: Method, first: Method):
    """Broken: the n-th line of one file against the n-th of the other."""
    a, b = (
        [r["curves"]["conditional"][-1] for run in m.runs for r in run.records]
        for m in (one, first)
    )
    length = min(len(a), len(b))
    return statistics.paired(a[:length], b[:length])


def by_task_id_alone(one: Method, first: Method):
    """Broken: task 3 of seed 0 taken for task 3 of seed 1."""
    a, b = (
        {r["task_id"]: r["curves"]["conditional"][-1] for r in records}
        for records in (one.runs[0].records, first.runs[1].records)
    )
    return statistics.paired([a[i] for i in a], [b[i] for i in a])


SHUFFLED = [5, 11, 2, 0, 7, 9, 1, 3, 10, 4, 6, 8]


def test_methods_are_paired_by_target_whatever_the_order(tmp_path):
    first, one = methods(tmp_path, ids=SHUFFLED)
    check_pairing({"figure": by_target(one, first), "n": 24})
    in_order = grouped(read_runs(run.path for run in first.runs))[0]
    assert by_target(first, in_order)["mean"] == 0.0


@pytest.mark.parametrize("broken", [by_row_order, by_task_id_alone])
def test_the_law_rejects_other_pairings(tmp_path, broken):
    first, one = methods(tmp_path, ids=SHUFFLED)
    found = broken(one, first)
    with pytest.raises(AssertionError):
        check_pairing({"figure": found, "n": found["n"]})


def test_only_common_targets_are_paired(tmp_path):
    first, one = methods(tmp_path, ids=range(5, 17))
    check_pairing({"figure": by_target(one, first), "n": 14})


def test_targets_of_other_samples_under_the_same_id_are_none_in_common(tmp_path):
    first = write_run(tmp_path / "one")
    targets = [{**record, "support": [[99]]} for record in records(0, GAIN)]
    other = write_run(tmp_path / "two", "weighting.use=uniform", targets=targets)
    found = comparison.compare_runs([first, other], force=True)
    against = found["methods"][1]["minus_first"]["conditional"]
    assert (against["n"], against["mean"], against["ci95"], against["p"]) == (0, None, None, None)


def test_a_row_of_one_run_is_what_its_results_say(tmp_path):
    path = write_run(tmp_path / "one", gain=GAIN)
    told = json.loads((path / "results.json").read_text())
    row = table.tabulate(grouped(read_runs([path])))["methods"][0]
    for name in ("unconditional", "conditional", "difference", "controls"):
        assert row[name] == told[name]


def test_seed_spread_is_of_runs_and_the_interval_is_of_targets(tmp_path):
    gains = (0.0, 0.1, 0.05)
    paths = [write_run(tmp_path / f"s{s}", f"seed={s}", gain=g) for s, g in enumerate(gains)]
    runs = read_runs(paths)
    (row,) = table.tabulate(grouped(runs))["methods"]
    pooled = [(r["curves"]["conditional"][-1], r["unconditional"]) for x in runs for r in x.records]
    assert row["difference"] == statistics.paired(*zip(*pooled, strict=True))
    means = [np.mean(list(run.scores("conditional").values())) for run in runs]
    assert row["seed_sd"]["conditional"] == pytest.approx(np.std(means, ddof=1))
    assert row["seed_sd"]["difference"] == pytest.approx(np.std(gains, ddof=1), abs=0.01)
    assert row["difference"]["n"] == 36
    half = np.diff(row["difference"]["ci95"])[0] / 2
    assert half < row["seed_sd"]["difference"], "the interval over targets knows no seeds"


def test_the_same_seed_spread_of_a_difference_between_methods(tmp_path):
    paths = []
    for seed, gain in enumerate((0.0, 0.2)):
        paths.append(write_run(tmp_path / f"a{seed}", f"seed={seed}"))
        overrides = (f"seed={seed}", "weighting.use=uniform")
        paths.append(write_run(tmp_path / f"b{seed}", *overrides, gain=gain))
    first, one = grouped(read_runs(paths))
    assert by_target(one, first)["seed_sd"] == pytest.approx(0.2 / 2**0.5, abs=0.01)


def test_one_seed_has_no_spread(tmp_path):
    (row,) = table.tabulate(grouped(read_runs([write_run(tmp_path / "one")])))["methods"]
    assert set(row["seed_sd"].values()) == {None}


def test_runs_by_other_code_are_noted(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "weighting.use=uniform")]
    assert comparison.compare_runs(paths)["notes"] == []
    env = paths[1] / "env.json"
    env.write_text(env.read_text().replace("e0", "e1"))
    assert comparison.compare_runs(paths)["notes"] == [
        "the runs were made by 2 versions of the engine's code"
    ]


def test_the_first_run_is_what_the_others_are_held_against(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "inner.use=ls", gain=GAIN)]
    forth, back = comparison.compare_runs(paths), comparison.compare_runs(reversed(paths))
    for found, sign in ((forth, 1), (back, -1)):
        assert found["methods"][0]["minus_first"] is None
        mean = found["methods"][1]["minus_first"]["conditional"]["mean"]
        assert sign * mean == pytest.approx(GAIN, abs=0.01)
    assert all(a["out"] != b["out"] for a, b in pairwise((forth, back)))
