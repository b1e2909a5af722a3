"""The documentation is true: its examples run, and what it names exists."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import metaforge
from metaforge import discovery
from metaforge.cli import main
from metaforge.cli.app import VERBS
from metaforge.discovery import Settings
from metaforge.recipe import load
from metaforge.recipe.document import read
from metaforge.recipe.trials import Trials
from metaforge_weightings.options import TasmlOptions

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(name), re.DOTALL)


@pytest.fixture
def cauchy(tmp_path, monkeypatch):
    """The plugin of docs/plugins.md in a file of its own, loaded."""
    path = tmp_path / "cauchy.py"
    path.write_text(blocks("docs/plugins.md", "python")[0])
    monkeypatch.chdir(tmp_path)
    discovery.configure(Settings(files=(path,)))
    yield metaforge.create("task_kernel", "cauchy")
    discovery.configure(None)
    del sys.modules["cauchy"]


def law_test() -> dict:
    found: dict = {}
    exec(blocks("docs/plugins.md", "python")[1], found)
    return found


def test_the_plugin_of_the_docs_keeps_its_laws(cauchy):
    law_test()["test_laws"]()


def test_its_test_rejects_a_kernel_that_counts_padding(cauchy, monkeypatch):
    def careless(self, tasks):
        return tasks.support_x.flatten(2).double().mean(1)

    monkeypatch.setattr(type(cauchy), "signature", careless)
    with pytest.raises(AssertionError, match="mask"):
        law_test()["test_laws"]()


def test_a_recipe_can_choose_it(cauchy):
    options = load("sp_ls", ["kernel.use=cauchy", "kernel.width=0.5"]).recipe.kernel.options
    assert options == {"width": 0.5}


def test_the_recipes_of_own_data_are_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks("docs/data.md", "python")[0], {})
    assert np.load("embeddings.npz")["X"].shape == (2400, 64)
    (tmp_path / "mine.yaml").write_text(blocks("docs/data.md", "yaml")[0])
    assert main(["validate", "mine.yaml"]) == 0
    (tmp_path / "mine.yaml").write_text(blocks("README.md", "yaml")[0])
    assert main(["validate", "mine.yaml"]) == 0
    assert main(["validate", "sp_maml", "data.use=arrays", "data.path=embeddings.npz"]) == 0


def test_the_selection_of_the_readme_keeps_its_budget():
    chosen = read(blocks("README.md", "yaml")[1], "README.md").data
    whole = {"data": "glyphs", "inner": "ls", **chosen}
    trials = Trials(load(whole).recipe)
    assert trials.conditionings <= whole["select"]["budget"]
    assert trials.rungs[0].targets == 8
    assert [
        len(trials.recipe.select.grid[key]) for key in ("kernel.scale", "weighting.lambda")
    ] == [4, 5]


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_tells_of_every_verb(verb):
    assert f"metaforge {verb}" in text("README.md")


def test_the_commands_of_the_readme_are_verbs_or_options():
    for line in "\n".join(blocks("README.md", "sh")).splitlines():
        if found := re.match(r"metaforge ([a-z]\w*)", line):
            assert found[1] in VERBS, line


def test_the_first_table_of_the_readme_is_that_of_the_results():
    lines = text("README.md").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    assert len(table) > 3
    assert "\n".join(["", *table, ""]) in text("docs/results.md")


def test_the_page_on_scores_has_every_option_and_solver_of_tasml():
    rows = re.findall(r"^\| `([\w-]+)` \|", text("docs/scores.md"), re.MULTILINE)
    fields = TasmlOptions.model_fields
    solvers = get_args(fields["solver"].annotation)
    assert rows[: len(fields) + len(solvers)] == [
        *(info.alias or name for name, info in fields.items()),
        *solvers,
    ]


def test_the_architecture_has_each_module_once():
    table = text("docs/architecture.md").partition("| module | job |")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = sorted(name for row in rows for name in re.findall(r"`([\w/]+)`", row))
    package = ROOT / "metaforge"
    modules = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    folders = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert named == sorted(modules + folders)
