"""What runs is what was installed: no network, no code from data, every version pinned."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDERS = ("metaforge", "plugins", "studies", "benchmarks", "examples")

# -- no code from data ---------------------------------------------------------------

#: Calls by which data become code, or that start a shell, by their full name.
NEVER = {
    *("eval", "exec", "compile", "execfile", "os.system", "os.popen", "code.interact", "runpy.*"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.*", "_pickle.*", "dill.*"),
    *("cloudpickle.*", "joblib.*", "shelve.open", "marshal.load", "marshal.loads"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.UnsafeLoader"),
    *("yaml.Loader", "yaml.FullLoader", "torch.load", "torch.hub.*", "numpy.load"),
    *("urllib.request.*", "requests.*", "http.client.*", "ftplib.*"),
}
#: Calls that are safe with this keyword argument, and its value.
SAFE_WITH = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}
#: Of these, calls without it are safe too.
SAFE_WITHOUT = {"numpy.load"}
#: Where such a call may stand, and why.
ALLOWED = {
    ("metaforge/workers.py", "pickle.loads"): "what this process pickled itself",
    ("metaforge/group.py", "pickle.loads"): "between the ranks of one run",
    ("metaforge/testing/inner_algorithms.py", "pickle.loads"): "what the law pickled itself",
    ("metaforge/testing/kernels.py", "pickle.loads"): "what the law pickled itself",
    ("metaforge/testing/models.py", "pickle.loads"): "what the law pickled itself",
}


def calls(source: str) -> Iterator[str]:
    """The full names of what is forbidden in a module's source, safe uses left out."""
    tree = ast.parse(source)
    names = {"np": "numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _full(node.func, names)
            shell = any(word.arg == "shell" for word in node.keywords)
            if shell and name.startswith("subprocess."):
                yield f"{name}(shell=...)"
            if _forbidden(name) and not _safe(name, node):
                yield name
        elif isinstance(node, ast.Attribute) and _full(node, names) in _LOADERS:
            yield _full(node, names)


def _safe(name: str, call: ast.Call) -> bool:
    keyword, value = SAFE_WITH.get(name, ("", None))
    given = [word.value for word in call.keywords if word.arg in (keyword, None)]
    if not given:
        return name in SAFE_WITHOUT and len(call.args) < 3
    return all(isinstance(one, ast.Constant) and one.value is value for one in given)


_LOADERS = {"yaml.UnsafeLoader", "yaml.Loader", "yaml.FullLoader"}


def _full(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_full(node.value, names)}.{node.attr}"
    return "?"


def _forbidden(name: str) -> bool:
    parts = name.split(".")
    return name in NEVER or any(
        ".".join([*parts[:end], "*"]) in NEVER for end in range(1, len(parts))
    )


def modules() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_module_makes_code_of_data():
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in modules()
        for name in calls(path.read_text(encoding="utf-8"))
    }
    assert len(modules()) > 200
    assert found - set(ALLOWED) == set()
    assert set(ALLOWED) - found == set(), "no longer needed"


@pytest.mark.parametrize(
    "line",
    [
        "eval('1')",
        "exec('x = 1')",
        "import pickle; pickle.load(file)",
        "from pickle import loads as read; read(data)",
        "import pickle as p; p.Unpickler(file)",
        "import torch; torch.load('x')",
        "import torch; torch.load('x', weights_only=False)",
        "import torch; torch.load('x', weights_only=maybe)",
        "import numpy as np; np.load('x', allow_pickle=True)",
        "import numpy as np; np.load('x', None, True)",
        "import numpy as np; np.load('x', **options)",
        "import yaml; yaml.load(text, Loader=yaml.Loader)",
        "import yaml; yaml.unsafe_load(text)",
        "import os; os.system('ls')",
        "import subprocess; subprocess.run('ls', shell=True)",
        "import urllib.request; urllib.request.urlopen('x')",
        "from torch import hub; hub.load('x', 'y')",
        "def f():\n    import marshal\n    return marshal.loads(b'')",
    ],
)
def test_each_kind_of_such_a_call_is_found(line):
    assert list(calls(line))


@pytest.mark.parametrize(
    "line",
    [
        "import torch; torch.load('x', weights_only=True)",
        "import numpy as np; np.load('x', allow_pickle=False)",
        "import numpy as np; np.load('x')",
        "module.eval()",
        "import re; re.compile('x')",
        "import yaml; yaml.safe_load(text)",
        "import subprocess; subprocess.run(['ls'])",
    ],
)
def test_what_only_looks_like_it_is_not(line):
    assert not list(calls(line))


# -- versions ------------------------------------------------------------------------

#: Pins of what no metadata ask for, and why they are there.
ASKED_FOR_OTHERWISE = {"editables": "hatchling asks for it where it makes an editable install"}
#: Requirements without a pin: their version follows from that of the torch which is installed.
FOLLOW_TORCH = {"timm", "torchvision"}
#: What a torch for GPUs brings along, by how the names begin; torch itself says which versions.
OF_TORCH = ("nvidia-", "cuda-", "triton")


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.split("#")[0].strip() for line in lines]
    return {canonicalize_name(n): v for n, _, v in (one.partition("==") for one in found if one)}


def required() -> set[str]:
    """All that the project, its extras and its build ask for."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = told["project"], told["project"]["optional-dependencies"].values()
    lines = [*project["dependencies"], *chain.from_iterable(extras)]
    lines += told["build-system"]["requires"]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def needed(names: set[str]) -> set[str]:
    """These, and what those of them that are installed need, and so on."""
    found: set[str] = set()
    todo = [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        found.add(name)
        try:
            lines = metadata.distribution(name).requires or ()
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            own = canonicalize_name(requirement.name)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            todo += [(own, each) for each in ("", *requirement.extras) if own not in found]
    return found


def test_every_pin_is_of_something_that_is_needed():
    assert set(pins()) - needed(required()) == set(ASKED_FOR_OTHERWISE)


def test_all_that_is_needed_is_pinned():
    lacking = needed(required() - FOLLOW_TORCH) - set(pins()) - FOLLOW_TORCH
    lacking = {name for name in lacking if not name.startswith(OF_TORCH)}
    lines = [f"{name}=={_version(name)}" for name in sorted(lacking)]
    assert not lines, "add to constraints.txt:\n" + "\n".join(lines)


def test_a_pin_fulfils_what_the_project_asks_for():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*told["dependencies"], *chain.from_iterable(told["optional-dependencies"].values())]
    for requirement in map(Requirement, lines):
        pin = pins().get(canonicalize_name(requirement.name))
        assert pin is None or requirement.specifier.contains(pin, prereleases=True), requirement


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


# -- no network ----------------------------------------------------------------------

#: A whole run, what validates and reports it, without a way out of the process.
WORK = """
import socket, sys

def denied(*arguments, **options):
    raise AssertionError(f"the network was asked for: {arguments!r}")

sys.addaudithook(
    lambda event, arguments: denied(event, arguments)
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname")
    else None
)
from metaforge.cli import main
from tests.small import SMALL
from metaforge.recipe.dialect import dump
from pathlib import Path

recipe, runs = Path("small.yaml"), Path("runs")
recipe.write_text(dump(SMALL))
assert main(["validate", str(recipe)]) == 0
assert main(["run", str(recipe), "--quiet", f"output={runs}"]) == 0
(run,) = runs.iterdir()
assert main(["report", str(run), "--text"]) == 0
assert main(["run", "--resume", str(run), "--quiet"]) == 0
assert main(["compare", str(run), str(run)]) != 0
print("done", "socket" in sys.modules)
"""


def _work(folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(WORK)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
            "METAFORGE_CACHE": str(folder / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_asks_for_no_network(tmp_path):
    done = _work(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "done" in done.stdout


def test_a_run_needs_no_network(tmp_path):
    """Where the system allows it, in a network that has no device but its own."""
    alone = [shutil.which("unshare") or "unshare", "--net", "--map-root-user"]
    try:
        allowed = subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("this system makes no network of its own: unshare --net is not allowed")
    done = _work(tmp_path, *alone)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_process_that_asks_for_the_network_is_found_out(tmp_path):
    asking = WORK.replace(
        "recipe, runs =", "socket.create_connection(('127.0.0.1', 9))\nrecipe, runs ="
    )
    command = [sys.executable, "-c", textwrap.dedent(asking)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "the network was asked for" in done.stderr
