"""The documentation is true: its examples run, and what it names exists."""

from __future__ import annotations

import inspect
import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import numpy as np
import pytest

import metaforge
from metaforge import discovery, hookspecs
from metaforge.cli import main
from metaforge.cli.app import VERBS
from metaforge.components import API_VERSION, load_attribute
from metaforge.discovery import Settings
from metaforge.recipe import load
from metaforge.recipe.document import read
from metaforge.recipe.trials import Trials
from metaforge_weightings.options import TasmlOptions
from tests.data.images import write_folder
from tests.environments import Environment

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def headings(name: str, level: int) -> list[str]:
    """Those that are a piece of code."""
    return re.findall(rf"^{'#' * level} `(.*)`$", text(name), re.MULTILINE)


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(name), re.DOTALL)


@pytest.fixture
def cauchy(tmp_path, monkeypatch):
    """The plugin of docs/plugins.md in a file of its own, loaded."""
    path = tmp_path / "cauchy.py"
    path.write_text(after("cauchy.py")[0])
    monkeypatch.chdir(tmp_path)
    discovery.configure(Settings(files=(path,)))
    yield metaforge.create("task_kernel", "cauchy")
    discovery.configure(None)
    del sys.modules["cauchy"]


def after(words: str) -> list[str]:
    """The blocks of Python of docs/plugins.md from some words on."""
    rest = text("docs/plugins.md").partition(words)[2]
    return re.findall(r"```python\n(.*?)```", rest, re.DOTALL)


def law_test() -> dict:
    found: dict = {}
    exec(after("cauchy.py")[1], found)
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


def block(path: str, language: str, holding: str) -> str:
    """The one block of a page that holds a text."""
    (found,) = (each for each in blocks(path, language) if holding in each)
    return found


def test_the_recipes_of_images_and_tables_are_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "birds", 30, 6, (16, 16))
    (tmp_path / "birds.yaml").write_text(block("docs/data.md", "yaml", "image_folder"))
    for line in block("docs/data.md", "sh", "birds.yaml").splitlines():
        _, _, *given = shlex.split(line)
        assert main(["validate", *given]) == 0
    rows = "".join(f"{row},{row % 7},bird {row // 6}\n" for row in range(180))
    (tmp_path / "features.csv").write_text(f"a,b,species\n{rows}")
    (tmp_path / "mine.yaml").write_text(block("docs/data.md", "yaml", "use: table"))
    assert main(["validate", "mine.yaml"]) == 0


@pytest.mark.slow
def test_data_from_python_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(block("docs/data.md", "python", "TensorDataset"), found)
    assert len((Path(found["results"]["run_dir"]) / "targets.jsonl").read_text().splitlines()) == 10
    assert found["source"].shape.outputs == 5


def test_the_selection_of_the_docs_keeps_its_budget():
    chosen = read(blocks("docs/running.md", "yaml")[0], "docs/running.md").data
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


def test_the_readme_has_the_headline_of_the_results():
    lines = text("README.md").partition("## Where conditioning pays")[2].splitlines()
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


# -- hooks and commands ------------------------------------------------------------------------


def signatures() -> list[str]:
    """Every hook, as its specification has it."""
    return [
        name + str(inspect.signature(getattr(hookspecs, name))).replace("'", "")
        for name in vars(hookspecs)
        if name.startswith("metaforge_")
    ]


def test_every_hook_has_a_heading_with_its_signature():
    assert headings("docs/plugins.md", 3) == signatures()


def test_the_hooks_are_those_of_interface_1():
    """A snapshot: a change here is one of the interface, for which docs/plugins.md has a policy."""
    assert API_VERSION == 1
    assert signatures() == HOOKS.strip().splitlines()


HOOKS = """
metaforge_datasets() -> Sequence[Component]
metaforge_backbones() -> Sequence[Component]
metaforge_models() -> Sequence[Component]
metaforge_inner_algorithms() -> Sequence[Component]
metaforge_task_kernels() -> Sequence[Component]
metaforge_task_weightings() -> Sequence[Component]
metaforge_trackers() -> Sequence[Component]
metaforge_recipes() -> Sequence[Path]
metaforge_add_commands(cli: click.Group) -> None
metaforge_check_recipe(recipe: Recipe) -> Sequence[Problem]
metaforge_run_started(run_dir: Path, recipe: Recipe) -> None
metaforge_meta_step(step: int, metrics: Mapping[str, float]) -> None
metaforge_target_evaluated(record: Mapping[str, Any]) -> None
metaforge_run_finished(run_dir: Path, results: Mapping[str, Any]) -> None
metaforge_report_sections(results: Mapping[str, Any]) -> Sequence[tuple[str, str]]
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb, and those below it."""
    for verb, (target, _) in VERBS.items():
        command = load_attribute(target)
        yield verb, command
        if isinstance(command, click.Group):
            yield from ((f"{verb} {name}", below) for name, below in command.commands.items())


def usage(name: str, command: click.Command) -> str:
    pieces = command.collect_usage_pieces(click.Context(command, info_name=name))
    return " ".join(["metaforge", name, *pieces])


def test_every_command_has_a_heading_with_its_usage_and_its_options():
    assert headings("docs/commands.md", 2) == [usage(*each) for each in commands()]
    sections = text("docs/commands.md").split("\n## ")[1:]
    for section, (_, command) in zip(sections, commands(), strict=True):
        options = [p for p in command.params if isinstance(p, click.Option)]
        lines = [f"- `{', '.join(option.opts)}`: {option.help}" for option in options]
        assert re.findall(r"^- .*$", section, re.MULTILINE) == lines
        assert command.help.split("\n\n")[0].split() == section.split("\n\n")[1].split()


# -- the tutorial ------------------------------------------------------------------------------


def test_the_code_of_the_tutorial_is_that_of_the_example():
    weighting, options = blocks("docs/plugins.md", "python")[:2]
    source = ROOT / "examples" / "metaforge-sliced" / "src" / "metaforge_sliced"
    assert weighting == (source / "weighting.py").read_text(encoding="utf-8")
    _, _, own = options.partition("class ")
    assert own in (source / "options.py").read_text(encoding="utf-8")


#: What makes the tutorial's runs small, and its seeds one.
SMALLER = {
    "sp_maml": [
        *("sp_maml_sinusoids", "--quiet", "meta_train.steps=20", "bank.size=60"),
        *("evaluate.targets=4", "condition.steps=5", "condition.record_at=[]"),
    ],
    "0,1,2": ["0"],
}


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_told(tmp_path):
    """Its commands, in order, in an environment of its own; the runs smaller than there."""
    place = Environment(tmp_path / "venv")
    source = place.folder / "metaforge-softmax-nearest/src/metaforge_softmax_nearest"
    for line in "".join(blocks("docs/plugins.md", "sh")[:2]).splitlines():
        program, *given = shlex.split(line)
        arguments = [part for word in given for part in SMALLER.get(word, [word])]
        if program == "pip":
            arguments += ["-q", "--no-deps", "--no-index", "--no-build-isolation"]
        if given[0] == "show":  # from here on it is the author's own code
            weighting, options = blocks("docs/plugins.md", "python")[:2]
            (source / "weighting.py").write_text(weighting, encoding="utf-8")
            (source / "options.py").write_text(options, encoding="utf-8")
        done = place.call(program, *arguments)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert len(list((place.folder / "runs").iterdir())) >= 4
