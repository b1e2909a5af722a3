"""The built wheel, used from outside the repository: every package, recipe and plugin is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECIPES = sorted(path.name for path in (ROOT / "recipes").glob("*.yaml"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel's content, unpacked as an installer would."""
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", built, ROOT],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = built.glob("*.whl")
    target = built / "site"
    zipfile.ZipFile(wheel).extractall(target)
    return target


def metaforge(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-m", "metaforge", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_sources_are_in_it_and_nothing_else_is_top_level(installed):
    for root, base in ((ROOT / "metaforge", ROOT), (ROOT / "plugins", ROOT / "plugins")):
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert (installed / path.relative_to(base)).is_file(), path
    top = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {
        "metaforge",
        *(p.name for p in (ROOT / "plugins").iterdir() if p.name.startswith("metaforge_")),
    }


def test_all_recipes_are_in_it(installed):
    for path in (ROOT / "recipes").rglob("*.yaml"):
        assert (installed / "metaforge" / path.relative_to(ROOT)).is_file(), path


@pytest.mark.parametrize("recipe", [r for r in RECIPES if not r.startswith("pretrain")])
def test_every_shipped_recipe_validates_outside_the_repository(installed, tmp_path, recipe):
    done = metaforge(installed, tmp_path, "validate", recipe.removesuffix(".yaml"))
    assert done.returncode == 0, done.stderr


def test_every_plugin_loads_from_it(installed, tmp_path):
    done = metaforge(installed, tmp_path, "plugins")
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
