"""The verdict in whole runs: in the results, in the report, and not in older folders."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import metaforge
from metaforge.cli import main
from metaforge.errors import DamagedFile
from metaforge.report import render_text
from metaforge.report.format import number
from metaforge.report.verdict import lines, percent
from tests import sealed
from tests.engine.verdict_cases import judged
from tests.small import SMALL

GLYPHS = {
    **SMALL,
    "data": {"use": "glyphs", "ways": 3, "shots": 1, "queries": 5},
    "inner": {"use": "ls", "hidden": 16},
}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def block(run_dir: str) -> dict[str, str]:
    """The report's block, by the first word or two of its lines."""
    text = render_text(Path(run_dir)).partition("\n\n")[2].partition("\n\n")[0]
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def change(run_dir: str, edit) -> Path:
    sealed.change(Path(run_dir) / "results.json", edit)
    return Path(run_dir)


@pytest.mark.parametrize(("value", "shown"), [(-0.001, "0%"), (0.995, "100%"), (1.2, "120%")])
def test_percent(value, shown):
    assert percent(value) == shown


def test_a_run_on_sinusoids():
    controls = "evaluate.controls=[random_m, target_only, oracle]"
    results = metaforge.run(SMALL, controls, "evaluate.without_target_term=true")
    verdict = results["verdict"]
    assert json.loads((Path(results["run_dir"]) / "results.json").read_text())["verdict"] == verdict
    over = verdict["over_control"]["mean"]
    assert over == pytest.approx(-results["controls"]["random_m"]["sp_minus_control"]["mean"])
    assert verdict["over_start"]["mean"] == pytest.approx(-results["difference"]["mean"])
    assert 0.1 < verdict["recalled"]["chance"]["mean"] < 0.3  # five families
    shown = block(results["run_dir"])
    names = ["gain of SP", "oracle", "recalled", "weights", "target term", "steps"]
    assert list(shown) == [*names, "limit", "advice"]
    assert f"{over:+.3f}" in shown["gain of SP"]
    assert shown["advice"] == verdict["advice"]


def test_a_run_on_glyphs_is_told_in_points():
    results = metaforge.run(GLYPHS, "evaluate.controls=[uniform_bank]")
    shown = block(results["run_dir"])
    assert list(shown) == ["gain, points", "recalled", "weights", "steps", "limit", "advice"]
    gain = results["verdict"]["over_start"]["mean"]
    assert gain == pytest.approx(results["difference"]["mean"])
    assert shown["gain, points"].startswith(f"{100 * gain:+.2f} (")


@pytest.mark.parametrize("weighting", ["uniform", "uncertainty"])
def test_a_weighting_that_ranks_nothing(weighting):
    shown = block(metaforge.run(SMALL, f"weighting.use={weighting}")["run_dir"])
    assert list(shown) == ["gain of SP", "steps", "limit", "advice"]


def test_no_steps_no_block():
    results = metaforge.run(SMALL, "condition.steps=0")
    assert results["verdict"] is None
    assert "advice" not in render_text(Path(results["run_dir"]))


def test_folders_of_before_are_shown_and_compared(capsys):
    folders = [metaforge.run(SMALL, f"condition.top_m={m}")["run_dir"] for m in (5, 10)]
    for folder in folders:
        change(folder, lambda found: found.pop("verdict"))
        assert "advice" not in render_text(Path(folder))
    assert main(["compare", *folders]) == 0
    assert "method" in capsys.readouterr().out


def test_a_damaged_verdict_is_told_with_its_place():
    folder = change(
        metaforge.run(SMALL)["run_dir"], lambda found: found["verdict"]["steps"].pop("best")
    )
    with pytest.raises(DamagedFile, match=r"verdict\.steps"):
        render_text(folder)


def test_a_fall_and_absent_groups_are_told_in_the_block():
    found = judged(
        {"conditional": 0.06, "random_m": 0.01, "oracle": 0.06},
        shape=(0.0, 1.5, 0.8, 0.2),
        absent=3,
    )
    text = "\n".join(lines(found, 100.0))
    assert "best of those recorded 1;" in text
    assert "widened for the choice, at 1 over 6" in text
    assert "no bank task of the group of 3 of 100 targets" in text
    assert re.search(r"SP has \d+% \(\d+% \.\. \d+%\) of its gain", text)


def test_a_share_that_is_none_is_told():
    gains = {"conditional": 0.05, "random_m": 0.04, "oracle": 0.045}
    text = "\n".join(lines(judged(gains, noise=0.1), 100.0))
    assert "no share of a gain that is not clear of zero" in text


def test_a_bank_with_no_group_of_any_target_is_told():
    found = judged({"conditional": 0.05, "random_m": 0.01}, absent=100)
    told = next(line for line in lines(found, 100.0) if line.startswith("recalled"))
    assert told.split("  ")[-1] == "no bank task of the group of 100 of 100 targets"


@pytest.mark.parametrize(
    ("value", "scale", "told"),
    [
        (1.23456e-5, 1.0, "+1.23e-05"),
        (-4.99e-4, 1.0, "-4.99e-04"),
        (5e-4, 1.0, "+0.001"),
        (0.0, 1.0, "+0.000"),
        (1.23456e-5, 100.0, "+0.00"),
        (None, 1.0, "undefined"),
    ],
)
def test_errors_too_small_for_three_decimals_keep_three_digits(value, scale, told):
    assert number(value, scale, sign=True) == told
