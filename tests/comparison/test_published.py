"""Published figures in a comparison: a column of their own, and no part of what a method is."""

from __future__ import annotations

import csv
import json

import pytest

import metaforge
from metaforge import comparison
from metaforge.comparison.methods import grouped
from metaforge.comparison.render import as_text, tables
from metaforge.comparison.runs import read_runs

from .folders import RECIPE, write_run

TABLE = {
    "source": "A table",
    "when": {"weighting.use": "tasml"},
    "unconditional": {"mean": 60.19, "spread": 0.65},
    "conditional": None,
    "spread": "sd over 50 runs of 200 tasks",
    "finding": None,
}
SECOND = {**TABLE, "unconditional": None, "conditional": {"mean": 62.04, "spread": 0.52}}
OTHER = {**SECOND, "source": "Another table", "conditional": {"mean": 61.0, "spread": 1.0}}
PLOT = {**TABLE, "source": "A plot", "unconditional": None, "spread": None, "finding": "it rises"}


@pytest.fixture
def found(tmp_path):
    def published(*entries):
        return lambda results: results.update(published=list(entries))

    paths = [
        write_run(tmp_path / "a", change=published(TABLE, SECOND, OTHER)),
        write_run(tmp_path / "b", "weighting.use=uniform", change=published(PLOT)),
    ]
    return comparison.compare_runs(paths, out=tmp_path / "out")


def test_columns_are_for_rows_that_have_a_figure(found):
    header, first, second = tables(found)[0].rows
    assert header[-2:] == ["published uncond.", "published SP"]
    assert first[-2:] == ["60.19 +- 0.65", "62.04 +- 0.52"], "the first entry counts"
    assert second[-2:] == ["", ""]


def test_without_any_there_are_no_columns(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "weighting.use=uniform")]
    bare = comparison.compare_runs(paths, out=tmp_path / "out")
    assert "published" not in as_text(bare)
    assert "published" not in (tmp_path / "out" / "comparison.csv").read_text()


def test_sources_and_the_meaning_of_their_spread_stand_below(found):
    text = as_text(found)
    for source in ("A table", "Another table"):
        line = f"published, not measured here: {source}; +- is the source's own: {TABLE['spread']}"
        assert text.count(line) == 1
    assert "published, not measured here: A plot; it rises" in text


def test_every_file_has_them(found, tmp_path):
    out = tmp_path / "out"
    told = json.loads((out / "comparison.json").read_text())["methods"]
    assert told[0]["published"] == [TABLE, SECOND, OTHER]
    first, second = csv.DictReader((out / "comparison.csv").read_text().splitlines())
    assert (first["published_conditional"], first["published_conditional_spread"]) == (
        "62.04",
        "0.52",
    )
    assert second["published_conditional"] == ""
    assert "it rises" in second["published_sources"]
    assert "| 60.19 +- 0.65 | 62.04 +- 0.52 |" in (out / "comparison.md").read_text()


def test_runs_that_differ_in_them_alone_are_one_method(tmp_path):
    entry = "[{source: A, when: {}, finding: none}]"
    paths = [
        write_run(tmp_path / "a", "seed=0"),
        write_run(tmp_path / "b", "seed=1", f"published={entry}"),
    ]
    (row,) = grouped(read_runs(paths))
    assert (row.seeds, row.label) == ((0, 1), "small")


def test_a_run_is_taken_again_whatever_is_published(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    path = metaforge.run(RECIPE)["run_dir"]
    entry = {"source": "A", "when": {}, "finding": "none"}
    over = {"weighting.use": ["tasml"]}
    again = metaforge.compare({**RECIPE, "published": [entry]}, over=over, quiet=True)
    assert again["methods"][0]["runs"] == [{"seed": 0, "path": path}]
