"""The saved table: one set of figures in CSV, Markdown and JSON."""

from __future__ import annotations

import csv
import json
import re

import pytest

from metaforge import comparison
from metaforge.comparison.render import as_markdown, as_text, tables
from metaforge.errors import DataError

from .folders import records, write_run


@pytest.fixture
def pair(tmp_path):
    return [
        write_run(tmp_path / "runs" / "a"),
        write_run(tmp_path / "runs" / "b", "weighting.use=uniform", gain=0.05),
    ]


def rows_of(folder) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "comparison.csv").read_text().splitlines()))


def test_files_hold_the_same_figures(pair, tmp_path):
    found = comparison.compare_runs(pair, out=tmp_path / "out")
    told = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert told == {key: value for key, value in found.items() if key != "out"}
    for row, wide in zip(told["methods"], rows_of(tmp_path / "out"), strict=True):
        assert wide["method"] == row["method"]
        for name in ("unconditional", "conditional", "difference"):
            assert float(wide[name]) == row[name]["mean"]
            assert float(wide[f"{name}_ci95_low"]) == row[name]["ci95"][0]
        control = row["controls"]["random_m"]["sp_minus_control"]
        assert float(wide["sp_minus_random_m"]) == control["mean"]
        assert float(wide["sp_minus_random_m_p"]) == control["p"]
        assert (wide["steps"], wide["seconds_per_target"]) == ("6", "0.25")
    assert float(rows_of(tmp_path / "out")[1]["conditional_minus_first"]) == pytest.approx(
        0.05, abs=0.01
    )


def test_text_and_markdown_have_the_same_cells(pair):
    found = comparison.compare_runs(pair)
    text, page = as_text(found), as_markdown(found)
    for table in tables(found):
        for row in table.rows:
            assert "| " + " | ".join(row) + " |" in page
            assert all(cell in text for cell in row)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == sum(len(table.rows) + 1 for table in tables(found))


def test_accuracies_are_shown_in_percent_and_every_spread_is_named(pair):
    found = comparison.compare_runs(pair)
    mean = found["methods"][1]["difference"]["mean"]
    text = as_text(found)
    assert f"{100 * mean:+.2f}" in text
    for named in ("95 % CI", "over targets", "sd with n-1", "seed sd", "permutation", "seed 0"):
        assert named in text


def test_what_is_not_defined_says_so_and_is_no_nan(tmp_path):
    one = records(0, 0.0, [0])
    a = write_run(tmp_path / "a", targets=one)
    b = write_run(tmp_path / "b", "weighting.use=uniform", targets=one)
    found = comparison.compare_runs([a, b], out=tmp_path / "out")
    text = as_text(found)
    assert "undefined" in text
    for written in (text, *(path.read_text() for path in (tmp_path / "out").iterdir())):
        assert not re.search(r"\bnan\b", written, re.IGNORECASE)
    wide = rows_of(tmp_path / "out")[0]
    assert (wide["difference_ci95_low"], wide["difference_p"]) == ("", "")


def test_a_forced_table_says_so_everywhere(tmp_path):
    a = write_run(tmp_path / "a")
    b = write_run(tmp_path / "b", "weighting.use=uniform", task={"shots": 1})
    found = comparison.compare_runs([a, b], out=tmp_path / "out", force=True)
    assert as_text(found).startswith("FORCED: these runs are unlike")
    for path in (tmp_path / "out").iterdir():
        assert f"shots: 5 in {a}; 1 in {b}" in path.read_text(), path
    assert "FORCED" in (tmp_path / "out" / "comparison.md").read_text()


def test_methods_may_have_other_controls(tmp_path):
    a = write_run(tmp_path / "a")
    without = records(0, 0.0)
    for record in without:
        record["curves"]["oracle"] = record["curves"].pop("random_m")
    b = write_run(tmp_path / "b", "weighting.use=uniform", targets=without)
    found = comparison.compare_runs([a, b], out=tmp_path / "out")
    header, first, second = tables(found)[1].rows
    assert header == ["method", "SP - random_m", "SP - oracle"]
    assert first[1]
    assert not first[2]
    assert second[2]
    assert rows_of(tmp_path / "out")[0]["sp_minus_oracle"] == ""


def test_the_default_folder_is_beside_the_runs_and_new(pair, tmp_path):
    found = comparison.compare_runs(pair)
    (made,) = (tmp_path / "runs").glob("*-compare-*")
    assert found["out"] == str(made)
    assert {path.name for path in made.iterdir()} == {
        "compare.html",
        "comparison.json",
        "comparison.csv",
        "comparison.md",
    }


def test_a_folder_that_cannot_be_made_is_an_error(pair, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make this folder"):
        comparison.compare_runs(pair, out=tmp_path / "file")
