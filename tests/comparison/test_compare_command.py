"""``metaforge compare`` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from metaforge.cli import main

from .folders import write_run


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", "weighting.use=uniform", gain=0.05)
    return ["runs/a", "runs/b"]


def test_runs_are_compared_and_the_table_is_printed_and_saved(pair, tmp_path, capsys):
    assert main(["compare", *pair, "--out", "table"]) == 0
    out, err = capsys.readouterr()
    assert "uniform" in out
    assert out.endswith("saved in: table\n")
    assert err == ""
    assert (tmp_path / "table" / "comparison.csv").exists()


def test_json_is_all_there_is(pair, tmp_path, capsys):
    assert main(["compare", *pair, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    saved = json.loads((tmp_path / found.pop("out") / "comparison.json").read_text())
    assert found == saved


def test_unlike_runs_end_with_3_and_one_message(pair, tmp_path, capsys):
    write_run(tmp_path / "runs" / "c", "inner.use=ls", task={"shots": 1})
    assert main(["compare", *pair, "runs/c"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "shots: 5 in runs/a, runs/b; 1 in runs/c" in err
    assert "Traceback" not in err
    assert main(["compare", *pair, "runs/c", "--force"]) == 0
    assert capsys.readouterr().out.startswith("FORCED")


USAGE = {
    "nothing": [],
    "one run": ["runs/a"],
    "recipe and nothing to vary": ["sp_maml", "seed=3"],
    "no recipe": ["--seeds", "0,1"],
    "override first": ["bank.size=3", "--seeds", "0,1"],
    "seeds that are none": ["sp_maml", "--seeds", "0,x"],
    "negative seeds": ["sp_maml", "--seeds=-1"],
    "over without values": ["sp_maml", "--over", "weighting.use"],
    "a run's folder as a recipe": ["runs/a", "--seeds", "0,1"],
    "runs with over": ["runs/a", "runs/b", "--over", "weighting.use=tasml"],
}


@pytest.mark.parametrize("words", USAGE.values(), ids=USAGE)
def test_bad_usage_ends_with_2_and_runs_nothing(pair, words, capsys, monkeypatch):
    monkeypatch.setattr("metaforge.comparison.compare_runs", None)
    assert main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err
    assert "Traceback" not in err


def test_comparing_runs_imports_no_torch(pair):
    code = (
        "import sys\nfrom metaforge.cli import main\n"
        "code = main(['compare', 'runs/a', 'runs/b'])\n"
        "print([name for name in ('torch', 'rich', 'learn2learn') if name in sys.modules])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_grid_of_bad_recipes_imports_no_torch_either(pair):
    code = (
        "import sys\nfrom metaforge.cli import main\n"
        "code = main(['compare', 'sp_maml', '--over', 'inner.use=maml,mmal'])\n"
        "print('torch' in sys.modules)\nsys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "did you mean 'maml'?" in done.stderr
    assert done.stdout == "False\n"
