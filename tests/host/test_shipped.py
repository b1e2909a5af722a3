"""The built-in plugins and the shipped recipes, as installed."""

from __future__ import annotations

import ast
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from metaforge import discovery
from metaforge.discovery import Settings
from metaforge.plugins import host
from metaforge.recipe import load
from metaforge.recipe.find import shipped_dir

REPOSITORY = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = PYPROJECT["project"]["entry-points"]["metaforge"]
RECIPES = sorted(shipped_dir().rglob("*.yaml"))


def command_of(path: Path) -> str:
    """The first line of a recipe, a comment with the command that runs it."""
    return path.read_text(encoding="utf-8").splitlines()[0]


#: The others are read by another verb, ``pretrain``, by rules of its own.
RUN = [path for path in RECIPES if command_of(path).startswith("# metaforge run ")]


@pytest.fixture
def built_in(tmp_path, monkeypatch):
    """Only the built-in plugins, by the entry points of the source's own pyproject."""
    folder = tmp_path / "metaforge-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: metaforge\nVersion: 0\n")
    rows = "\n".join(f"{name} = {module}" for name, module in ENTRY_POINTS.items())
    (folder / "entry_points.txt").write_text(f"[metaforge]\n{rows}\n")
    every = metadata.distributions
    monkeypatch.setattr(metadata, "distributions", lambda: every(path=[str(tmp_path)]))
    monkeypatch.syspath_prepend(REPOSITORY / "plugins")
    monkeypatch.setenv("METAFORGE_DATA", str(tmp_path))
    discovery.configure(Settings())
    yield
    discovery.configure(None)


def test_plugin_folders_are_the_entry_points():
    folders = {path.parent.name for path in (REPOSITORY / "plugins").glob("*/__init__.py")}
    assert folders == set(ENTRY_POINTS.values())
    assert all(module == f"metaforge_{name}" for name, module in ENTRY_POINTS.items())


def test_every_built_in_data_set_says_unloaded_whether_tasks_have_groups(built_in):
    sets = [component for component, _ in host().components() if component.kind == "dataset"]
    assert len(sets) >= 4
    assert all(component.groups is not None for component in sets)


def test_every_built_in_plugin_loads_and_adds_no_command(built_in):
    for plugin in host().plugins:
        assert plugin.state == "loaded", str(plugin) + plugin.reason
        assert not plugin.commands  # `metaforge --help` relies on it


def test_every_built_in_component_is_described(built_in):
    for component, plugin in host().components():
        assert component.summary, f"{plugin}: {component.name}"
        for name, field in component.options_model.model_fields.items():
            assert field.description, f"{plugin}: {component.name}.{name}"


def test_every_target_is_in_the_source(built_in):
    for component, plugin in host().components():
        for target in (component.target, component.check):
            if target is None:
                continue
            module, _, attribute = target.partition(":")
            engine = module.startswith("metaforge.")
            path = (REPOSITORY if engine else REPOSITORY / "plugins").joinpath(*module.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {getattr(node, "name", None) for node in tree.body}
            assert attribute in names, f"{plugin}: {target}"


def test_recipes_are_shipped():
    assert RUN


def test_every_shipped_recipe_opens_with_its_command():
    for path in RECIPES:
        assert path.relative_to(shipped_dir()).as_posix() in command_of(path)
        assert command_of(path).startswith(("# metaforge run recipes/", "# metaforge pretrain "))


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_every_shipped_recipe_validates(built_in, path):
    brings_data = "METAFORGE_DATA" not in path.read_text(encoding="utf-8")
    resolved = load(path, check=brings_data)
    assert resolved.recipe.name == path.stem
    assert resolved.with_values({}).recipe == resolved.recipe
