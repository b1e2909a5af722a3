"""``metaforge new``: what it makes works as it is made, for every kind."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from metaforge.errors import MetaforgeError, UnknownName
from metaforge.scaffold import SCAFFOLDS, scaffold
from tests.environments import Environment

NAMES = {word: f"my-{word.partition('-')[0]}" for word in SCAFFOLDS}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with one plugin of every kind."""
    folder = tmp_path_factory.mktemp("new")
    for word, name in NAMES.items():
        scaffold(word, name, folder / f"metaforge-{name}")
    return folder


def test_nothing_is_left_to_fill_in(made):
    for path in made.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "\N{SECTION SIGN}" not in text, path
            assert "${name}" not in text, path


@pytest.mark.parametrize("verb", [("check",), ("format", "--check")], ids=lambda verb: verb[0])
def test_it_is_clean_by_its_own_rules(made, verb):
    for folder in made.iterdir():
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *verb, "."], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_it_installs_keeps_the_laws_and_runs(made, tmp_path):
    place = Environment(tmp_path / "venv")
    place.install(*sorted(made.iterdir()))
    tests = [str(folder / "tests") for folder in sorted(made.iterdir())]
    options = ("-q", "--import-mode=importlib", "-p", "no:cacheprovider")
    done = place.call("pytest", *options, *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 100
    done = place.call("metaforge", "plugins", "check", NAMES["weighting"])
    assert "task_weighting my-weighting: 21 of 21 laws" in done.stdout
    for word, name in NAMES.items():
        recipe, *changes = shlex.split(SCAFFOLDS[word].use.format(name=name))
        done = place.call("metaforge", "validate", recipe, *changes)
        assert done.returncode == 0, done.stderr
    done = place.call(
        "metaforge",
        "run",
        "--quiet",
        "sp_ls",
        f"data={{use: {NAMES['dataset']}}}",
        f"inner={{use: {NAMES['inner-algorithm']}}}",
        f"kernel.use={NAMES['kernel']}",
        f"weighting.use={NAMES['weighting']}",
        f"trackers=[{NAMES['tracker']}]",
        "evaluate.controls=[]",
        *("meta_train.steps=20", "bank.size=60", "evaluate.targets=4", "condition.steps=5"),
    )
    assert done.returncode == 0, done.stderr
    (run,) = (place.folder / "runs").iterdir()
    assert '"event": "finished"' in (run / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("kind", "name", "error", "words"),
    [
        ("kernal", "mine", UnknownName, "did you mean 'kernel'"),
        ("kernel", "My kernel", MetaforgeError, "is no name for a plugin"),
        ("kernel", "-x", MetaforgeError, "is no name for a plugin"),
        ("weighting", "maml", MetaforgeError, "metaforge_maml, which is there already"),
        ("weighting", "uniform", MetaforgeError, "offered by plugin 'weightings'"),
        ("kernel", "../x", MetaforgeError, "is no name for a plugin"),
    ],
)
def test_what_cannot_be_made_is_told(tmp_path, monkeypatch, kind, name, error, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        scaffold(kind, name)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MetaforgeError, match="nothing is overwritten"):
        scaffold("kernel", "mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["kernel", "kernels", "task_kernel", "task-kernels"])
def test_a_kind_may_be_said_as_elsewhere(tmp_path, kind):
    assert scaffold(kind, "mine", tmp_path / "new").is_dir()
