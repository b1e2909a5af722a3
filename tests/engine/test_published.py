"""Published figures beside a run's own: in its results and its report, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import metaforge
from metaforge.report import render_text

from .test_pipeline import SMALL, read, without_clock

SPREAD = "sd over 50 runs of 200 tasks"
ENTRIES = [
    {
        "source": "A table",
        "when": {"condition.top_m": 10, "inner.use": "maml"},
        "spread": SPREAD,
        "unconditional": [60.19, 0.65],
    },
    {
        "source": "A table",
        "when": [{"condition.top_m": 10}, {"inner.steps": 2}],
        "spread": SPREAD,
        "conditional": [62.0, 0.5],
    },
    {"source": "Its plot", "when": {"kernel.use": "gaussian"}, "finding": "it rises"},
    {
        "source": "Another table",
        "when": {"condition.top_m": 20},
        "spread": SPREAD,
        "conditional": [99.9, 9.9],
    },
]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def run(*overrides: str, published=ENTRIES) -> dict:
    return metaforge.run({**SMALL, "published": published}, *overrides)


def check_only_what_matches_is_shown(results: dict) -> None:
    """The law: the figures of other settings stand nowhere in a run's report."""
    text = render_text(Path(results["run_dir"]))
    assert [entry["source"] for entry in results["published"]] == ["A table", "A table", "Its plot"]
    assert "62 +- 0.5" in text
    assert "99.9" not in text


def test_what_matches_is_in_the_results_and_the_report():
    results = run()
    check_only_what_matches_is_shown(results)
    first, second, plot = json.loads(read(results["run_dir"], "results.json"))["published"]
    assert first["unconditional"] == {"mean": 60.19, "spread": 0.65}
    assert first["conditional"] is None
    assert second["when"] == {"condition.top_m": 10, "inner.steps": 2}
    assert (plot["finding"], plot["spread"]) == ("it rises", None)


def test_the_law_rejects_a_report_that_shows_every_entry(monkeypatch):
    monkeypatch.setattr("metaforge.results.matching", lambda recipe: recipe.published)
    with pytest.raises(AssertionError):
        check_only_what_matches_is_shown(run())


def test_the_report_keeps_them_apart_from_the_measured_rows():
    lines = render_text(Path(run()["run_dir"])).splitlines()
    start = next(i for i, line in enumerate(lines) if "not measured here" in line)
    assert lines[start - 1] == ""
    assert lines[start].split("  ")[0] == "published, not measured here"
    assert [line.split("  ")[-1].strip() for line in lines[start + 1 : start + 3]] == [SPREAD] * 2
    assert lines[start + 3] == "published, not measured here: Its plot: it rises"
    assert not any("+-" in line for line in lines[: start - 1])


def test_the_options_that_selection_chose_decide():
    select = {"grid": {"condition.top_m": [20]}, "targets": 3}
    results = metaforge.run({**SMALL, "published": ENTRIES, "select": select})
    assert [entry["source"] for entry in results["published"]] == ["Its plot", "Another table"]


def test_they_change_no_figure_and_share_the_cache_of_phase_1():
    plain, beside = run(published=[]), run()
    assert plain["published"] == []
    assert "published" not in render_text(Path(plain["run_dir"]))
    assert "from the cache" in read(beside["run_dir"], "log.txt")
    assert {**without_clock(beside), "published": []} == without_clock(plain)


def test_a_curve_is_shown_where_steps_were_asked_for():
    results = run("condition.record_at=[2, 4]", "evaluate.controls=[random_m]")
    lines = render_text(Path(results["run_dir"])).splitlines()
    start = lines.index("mean squared error, after each number of steps J")
    header = "J  conditional  random_m  conditional - (J = 0)"
    assert lines[start + 1].startswith(header)
    rows = [line.split() for line in lines[start + 2 : start + 6]]
    assert [row[0] for row in rows] == ["0", "2", "4", "6"]
    assert [float(row[1]) for row in rows] == [
        round(mean, 3) for mean in results["curve"]["mean"]["conditional"]
    ]
    assert rows[0][3:] == ["+0.000", "undefined"]
    assert results["curve"]["gain"][-1] == results["difference"]
    assert "after each number of steps" not in render_text(Path(run()["run_dir"]))
