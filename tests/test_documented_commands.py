"""Every command of README.md and docs/*.md runs, on small stand-ins for the reader's files.

A page's commands run in order in one folder, as a reader would type them, with recipes made
small. What is not run here is listed with where it is.
"""

from __future__ import annotations

import re
import shlex
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import metaforge
from metaforge import discovery
from metaforge.cli import main
from tests.data.images import write_folder
from tests.small import SMALL
from tests.test_docs import after, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[1]
#: Pages with a test of their own: tests/learner/test_use_page.py.
_APART = {"docs/use.md"}
_DOCS = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
PAGES = ["README.md", *sorted(_DOCS - _APART)]

#: Commands, by how they begin, that run elsewhere, or make what these tests run in.
ELSEWHERE = {
    "make ": "the suite itself, and the demo's recipe in README.md",
    "pip install": "tests/test_wheel.py; the environment of these tests is made so",
    "torchrun ": "tests/test_torchrun.py",
    "pytest ": "tests/test_docs.py, the tutorial",
}
#: Lines of docs/plugins.md that tests/test_docs.py runs in an environment of their own.
TUTORIAL = "softmax-nearest"

#: What makes a run small. Sinusoids stand in for glyphs, which take a minute to draw.
SMALLER = {
    "meta_train.steps": "10",
    "bank.size": "60",
    "condition.steps": "4",
    "condition.record_at": "[]",
    "evaluate.targets": "4",
}
STAND_INS = {"sp_maml": "sp_maml_sinusoids", "recipes/sp_maml.yaml": "sp_maml_sinusoids"}
GLYPHS = ["data.per_letter=2", "data.per_face=1", "data.shots=1", "data.queries=1"]
PRETRAIN = ["epochs=1", "data.size=16", "backbone.size=16", "backbone.widths=[4,8]"]
PRETRAIN += ["validation.episodes=4", "augment.crop=2", "validation.shots=1"]
#: Options of commands, and what stands for them here.
SMALL_OPTIONS = {"600": "6"}


def commands(page: str) -> list[str]:
    """The lines of a page's shell blocks, continued ones joined, comments left out."""
    joined = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def elsewhere(line: str) -> bool:
    return TUTORIAL in line or any(line.startswith(start) for start in ELSEWHERE)


class Reader:
    """A folder with what the pages suppose to be there, and the commands typed in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name, classes, each in (("drawings", 30, 20), ("few", 5, 3), ("new", 5, 4)):
            write_folder(folder / name, classes, each, size=(28, 28))
        for same in ("photos", "birds"):
            (folder / same).symlink_to(folder / "drawings")
        exec(blocks("docs/data.md", "python")[0], {})
        (folder / "mine.yaml").write_text(blocks("docs/data.md", "yaml")[0])
        (folder / "birds.yaml").write_text(blocks("docs/data.md", "yaml")[1])
        (folder / "small.csv").write_text(table())
        plugin = after("cauchy.py")[0]
        (folder / "cauchy.py").write_text(plugin)
        (folder / "my_kernel.py").write_text(
            plugin.replace('"cauchy"', '"mine"').replace("cauchy:", "my_kernel:")
        )
        (folder / "my.yaml").write_text((folder / "mine.yaml").read_text())
        (folder / "recipes").symlink_to(ROOT / "recipes")

    def types(self, line: str) -> int:
        """The exit code of a command, made small."""
        words = shlex.split(line)
        assert words.pop(0) == "metaforge", line
        if words[:1] == ["cp"]:
            (self.folder / words[2]).unlink(missing_ok=True)
        return main(self._small([self._present(word) for word in words]))

    def _present(self, word: str) -> str:
        """A run of this folder for a run's name; a small number for a large one."""
        made = self.folder.glob("runs/*-sp_maml_sinusoids-*")
        runs = sorted(made, key=lambda run: (run / "recipe.yaml").stat().st_mtime_ns)
        if word.startswith("runs/2026"):
            return str(runs[0])
        if word in ("runs/A", "runs/B"):
            return str(runs["AB".index(word[-1])])
        return SMALL_OPTIONS.get(word, word)

    def _small(self, words: list[str]) -> list[str]:
        verb = next((w for w in words if w in ("run", "compare", "pretrain", "embed")), "")
        if verb == "embed" and "resnet12" in words:
            return [*words, "size=16", "widths=[4,8]"]
        if verb == "pretrain":
            return [*words, *PRETRAIN, *(GLYPHS if "pretrain_glyphs" in words else [])]
        own_data = any(word.startswith("data.") for word in words)
        words = [STAND_INS.get(word, word) if not own_data else word for word in words]
        takes_recipe = "--resume" not in words and "runs" not in " ".join(words)
        if verb not in ("run", "compare") or not takes_recipe:
            return words
        kept = [word for word in words if word.partition("=")[0] not in SMALLER]
        glyphs = "sp_ls" in words and not own_data
        changes = [f"{key}={value}" for key, value in SMALLER.items()]
        return [*kept, *changes, *(GLYPHS if glyphs else [])]


def table() -> str:
    """A table of 30 classes, 8 rows each."""
    rng = np.random.default_rng(0)
    rows = [f"{c},{','.join(f'{v:.3f}' for v in rng.normal(c, 1, 4))}" for c in range(30)] * 8
    return "\n".join(["label,a,b,c,d", *rows])


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> str:
    """What one page computes another need not."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def reader(tmp_path, cache, monkeypatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", cache)
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    yield Reader(tmp_path)
    discovery.configure(None)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_order(page, reader, capsys):
    lines = [line for line in commands(page) if not elsewhere(line)]
    if page == "docs/report.md" and lines:  # it supposes a run
        reader.types("metaforge run sp_maml")
    for line in lines:
        code = reader.types(line)
        discovery.configure(None)
        said = capsys.readouterr()
        allowed = (0, 1) if line == "metaforge doctor" else (0,)  # 1: an optional package lacks
        assert code in allowed, (line, code, said.err[-2000:])


def test_every_line_of_a_shell_block_is_a_command():
    """So that none is passed over."""
    for page in PAGES:
        for line in commands(page):
            assert elsewhere(line) or line.startswith("metaforge "), (page, line)


def test_a_command_that_does_not_exist_is_found_out(reader, capsys):
    assert reader.types("metaforge ls no_such_kind") == 2
    capsys.readouterr()


def test_the_python_of_the_readme_runs(reader, monkeypatch):
    """On the small recipe in the place of the shipped ones."""
    first, second = blocks("README.md", "python")
    rng = np.random.default_rng(0)
    for name in ("few", "drawings"):
        np.savez(f"{name}.npz", X=rng.normal(size=(10, 64)), y=np.arange(10) % 2)
    exec(first, {})
    run, compare = metaforge.run, metaforge.compare
    small = {"condition.steps=2", "evaluate.targets=4"}
    monkeypatch.setattr(metaforge, "run", lambda _, *changes, **more: run(SMALL, *changes, **more))
    monkeypatch.setattr(
        metaforge, "compare", lambda _, **more: compare(SMALL, *small, quiet=True, **more)
    )
    import torch

    module = torch.nn.Linear(1, 1)
    names = {"x": rng.normal(size=(5, 1)), "y": rng.normal(size=(5, 1)), "my_module": module}
    exec(second.replace("evaluate.targets=200", "evaluate.targets=4"), names)
    assert isinstance(names["model"], torch.nn.Module)
