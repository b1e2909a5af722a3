"""A third party's distribution: built to a wheel, installed where metaforge is, and at work beside
plugins that are broken, that clash with it and that are blocked."""

from __future__ import annotations

import json
import sys

import pytest

from tests.environments import ROOT, Environment, module

EXAMPLE = ROOT / "examples" / "metaforge-sliced"

pytestmark = pytest.mark.slow


CLASH = """
from metaforge import hookimpl
from metaforge.components import Component

@hookimpl
def metaforge_task_kernels():
    return [Component(kind="task_kernel", name="sliced", target="clash:Nothing")]
"""
FORBIDDEN = """
from pathlib import Path
Path(__file__).with_suffix(".imported").touch()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Environment:
    folder = tmp_path_factory.mktemp("third-party")
    done = module(
        sys.executable,
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(folder),
        str(EXAMPLE),
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    made = Environment(folder / "venv")
    made.install(wheel)
    return made


def small(place: Environment, *changes: str, before: tuple[str, ...] = ()) -> dict:
    """The results of a small run with both of the example's components."""
    sizes = [
        "meta_train.steps=20",
        "bank.size=60",
        "evaluate.targets=4",
        "condition.steps=5",
        "condition.record_at=[]",
    ]
    used = ["kernel.use=metaforge-sliced:sliced", "weighting.use=nearest", *changes]
    done = place.call("metaforge", *before, "run", "--quiet", "sp_maml_sinusoids", *sizes, *used)
    assert done.returncode == 0, done.stderr
    run = max((place.folder / "runs").iterdir())
    return {
        "results": json.loads((run / "results.json").read_text()),
        "env": json.loads((run / "env.json").read_text()),
    }


def test_its_own_tests_pass_where_it_is_installed(place, tmp_path):
    tests = str(EXAMPLE / "tests")
    done = module(place.python, "pytest", "-q", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_runs_and_the_run_says_what_served_it(place):
    found = small(place)["env"]
    served = found["components"]["kernel"]
    assert (served["distribution"], served["version"]) == ("metaforge-sliced", "0.1.0")
    assert found["plugins"]["metaforge-sliced:sliced"]["version"] == "0.1.0"


def test_it_works_unchanged_beside_bad_neighbours(place):
    alone = small(place)["results"]
    place.plugin("bad", "import a_module_that_is_nowhere")
    place.plugin("clash", CLASH)
    place.plugin("forbidden", FORBIDDEN)
    blocked = ("-p", "no:forbidden")
    beside = small(place, before=blocked)["results"]
    for part in ("unconditional", "conditional", "difference", "curve"):
        assert beside[part] == alone[part]
    assert not (place.site / "forbidden.imported").exists(), "a blocked plugin leaves no trace"
    listed = json.loads(place.call("metaforge", *blocked, "plugins", "--json").stdout)
    states = {plugin["name"]: plugin["state"] for plugin in listed}
    assert states["sliced"] == states["clash"] == "loaded"
    assert (states["bad"], states["forbidden"]) == ("failed", "blocked")
    (bad,) = [plugin for plugin in listed if plugin["name"] == "bad"]
    assert "a_module_that_is_nowhere" in bad["reason"]
    done = place.call("metaforge", *blocked, "validate", "sp_maml", "kernel.use=sliced")
    assert done.returncode == 4, done.stderr
    assert "dist-clash" in done.stderr
    assert "metaforge-sliced" in done.stderr
