"""Small runs, each made once for all tests of this folder that ask for it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import metaforge
from tests.learner.runs import CASES, INNER, arrays, recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes a run once: name -> its folder and learner."""
    folder = tmp_path_factory.mktemp("runs")
    patch = pytest.MonkeyPatch()
    patch.setenv("METAFORGE_CACHE", str(folder / "cache"))
    patch.chdir(folder)
    found: dict = {}

    def make(name: str):
        if name not in found:
            path = None if name == "regression" else arrays(folder)
            whole = recipe(path, INNER.get(name, name), **copy.deepcopy(CASES[name]))
            run = Path(metaforge.run(whole, quiet=True)["run_dir"])
            found[name] = folder / run, metaforge.load(run)
        return found[name]

    yield make
    patch.undo()
