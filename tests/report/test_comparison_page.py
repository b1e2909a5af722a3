"""The page of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaforge import comparison
from metaforge.report import html
from tests.comparison.folders import write_run
from tests.report.markup import Page
from tests.report.test_page import HOSTILE


@pytest.fixture
def pair(tmp_path) -> list[Path]:
    return [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", "weighting.use=uniform", gain=0.1),
    ]


def compared(runs, **more) -> tuple[Page, dict]:
    found = comparison.compare_runs(runs, **more)
    return Page((Path(found["out"]) / "compare.html").read_text(encoding="utf-8")), found


def test_the_page_is_whole_and_has_every_figure(pair):
    page, found = compared(pair)
    assert page.faults == []
    figures = {"method-gains", "against-first", "score-against-steps", "pairs-1"}
    assert set(page.figures) == figures
    difference = found["methods"][1]["minus_first"]["conditional"]["mean"]
    assert f"{100 * difference:+.2f}" in page.text
    assert "Nothing was found that makes these runs unlike" in page.text


def test_a_forced_comparison_says_so_first(pair, tmp_path):
    other = write_run(tmp_path / "c", "condition.steps=7", task={"fingerprint": "f" * 32})
    page, found = compared([*pair, other], force=True)
    assert page.faults == []
    assert "Forced: these runs are unlike" in page.text
    assert all(line in page.text for line in found["unlike"])
    assert "Nothing was found" not in page.text


def test_a_single_method_has_no_pairs(pair):
    page, _ = compared(pair[:1])
    assert page.faults == []
    assert set(page.figures) == {"method-gains", "score-against-steps"}


def test_hostile_strings_are_text(tmp_path):
    runs = [
        write_run(tmp_path / name, change=lambda found: found.update(notes=[HOSTILE]))
        for name in ("a", "b'><script>")
    ]
    page, _ = compared(runs, force=True)
    assert page.faults == []
    assert HOSTILE in page.text


def test_the_same_comparison_gives_the_same_bytes(pair, tmp_path):
    pages = [
        (Path(comparison.compare_runs(pair, out=tmp_path / name)["out"]) / "compare.html")
        for name in "xy"
    ]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_page_that_cannot_be_written_is_told(pair, tmp_path, monkeypatch):
    from metaforge.comparison.methods import grouped
    from metaforge.comparison.runs import read_runs
    from metaforge.comparison.table import tabulate
    from metaforge.errors import DataError

    rows = grouped(read_runs(pair))
    with pytest.raises(DataError, match="cannot write"):
        html.write_comparison(tmp_path / "no", {**tabulate(rows), "unlike": []}, rows)
