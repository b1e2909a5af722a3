"""Fake plugins in fake installed distributions, so that no test needs the built-in ones."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest

from metaforge import discovery
from metaforge.discovery import Settings
from metaforge.plugins import PluginHost

#: A plugin with a component of every kind that a recipe needs, and data that it checks.
FAKE = '''
"""A fake plugin."""
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from metaforge.components import Component
from metaforge.options import Choice, Options, choice
from metaforge.hookspecs import hookimpl


class Data(Options):
    ways: PositiveInt = Field(5, description="classes of a task")
    root: Path | None = Field(None, description="where the images are")
    files: tuple[Path, ...] = ()
    shuffle: bool = False
    broken: Literal["no", "list", "raise"] = "no"


class Linear(Options):
    bias: bool = True


class Mlp(Options):
    hidden: tuple[PositiveInt, ...] = (64,)


class Maml(Options):
    """Options that hold another component."""

    model: Choice = choice("model", "linear", description="what is adapted")
    backbone: Choice | None = Field(None, json_schema_extra={"component_kind": "backbone"})
    steps: PositiveInt = Field(5, description="inner steps")
    lr: PositiveFloat = 0.1


class Ls(Options):
    ridge: PositiveFloat = Field(0.1, alias="lambda")
    lr: PositiveFloat = 0.1


class Gaussian(Options):
    gamma: PositiveFloat = Field(50.0, description="inverse squared width")
    normalize: bool = True


class Laplace(Options):
    sigma: PositiveFloat | Literal["median"] = "median"
    normalize: bool = True

    @model_validator(mode="after")
    def _looks_at_what_was_given(self):
        if {"sigma", "normalize"} <= self.model_fields_set:
            raise ValueError("give sigma or normalize")
        return self


class Tasml(Options):
    ridge: PositiveFloat | Literal["n^-1/2"] = Field("n^-1/2", alias="lambda")
    jitter: PositiveFloat = 1e-10


CITE = "@article{fake2020,\\n  title = {Fake}\\n}"


@hookimpl
def metaforge_datasets():
    return [Component("dataset", "glyphs", "fakeplug_parts:Part", Data, "letters",
                      cites=(CITE,), check="fakeplug_checks:check")]


@hookimpl
def metaforge_models():
    return [Component("model", "linear", "fakeplug_parts:Part", Linear, "one layer"),
            Component("model", "mlp", "fakeplug_parts:Part", Mlp, "layers")]


@hookimpl
def metaforge_backbones():
    return [Component("backbone", "conv", "fakeplug_parts:Part", Linear, "convolutions")]


@hookimpl
def metaforge_inner_algorithms():
    return [Component("inner_algorithm", "maml", "fakeplug_parts:Part", Maml, "gradient steps",
                      cites=(CITE,)),
            Component("inner_algorithm", "ls", "fakeplug_parts:Part", Ls, "ridge head")]


@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", "gaussian", "fakeplug_parts:Part", Gaussian, "gaussian"),
            Component("task_kernel", "laplace", "fakeplug_parts:documented", Laplace, "laplace")]


@hookimpl
def metaforge_task_weightings():
    return [Component("task_weighting", "tasml", "fakeplug_parts:Part", Tasml, "ridge scores"),
            Component("task_weighting", "uniform", "fakeplug_parts:Part", Options, "all equal")]


@hookimpl
def metaforge_trackers():
    return [Component("tracker", "csv", "fakeplug_parts:Part", Linear, "a file")]
'''

#: What the components' targets name. It stands for code that imports torch.
PARTS = '''
"""Parts of the fake plugin."""
import fakeplug_heavy


class Part:
    """A part.

    ``y = x``
    """

    def __init__(self, options, context, **nested):
        self.options, self.context, self.nested = options, context, nested


def documented(options, context):
    """A documented function."""
'''

CHECKS = """
from metaforge.errors import DataError


def check(options, context):
    if options.broken == "raise":
        raise DataError(f"{options.root}: truncated")
    return ["class a: has 3, needs 6", "class b: has 2, needs 6"] * (options.broken == "list")
"""

#: Stands for the built-in plugins, whose absence has a message of its own.
BUILT_IN = """
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_run_finished(): pass
"""

RECIPE = """\
# metaforge run recipes/fake.yaml
#
# A recipe of fakes.
name: fake
data:
  use: glyphs
  ways: 3
inner:
  use: maml
  steps: 2
kernel: {use: gaussian, gamma: 2.0}
weighting:
  use: tasml
  lambda: 1e-4
condition:
  steps: 20
"""


class Site:
    """A folder of fake installed distributions, the only ones that are discovered."""

    def __init__(self, path: Path):
        self.path = path
        self.packages: list[str] = []

    def module(self, name: str, source: str) -> Path:
        """A top-level module (or, for ``package/module``, one in a package)."""
        path = self.path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source), encoding="utf-8")
        self.packages.append(name.partition("/")[0])
        importlib.invalidate_caches()
        return path

    def distribution(
        self,
        name: str,
        entry_points: Mapping[str, str] | str,
        *,
        version: str = "1.0",
        requires: Sequence[str] = (),
    ) -> None:
        """Metadata as an installer writes it."""
        folder = self.path / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Requires-Dist: {requirement}" for requirement in requires]
        text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        (folder / "METADATA").write_text(text + "\n")
        if not isinstance(entry_points, str):
            rows = [f"{key} = {value}" for key, value in entry_points.items()]
            entry_points = "\n".join(["[metaforge]", *rows])
        (folder / "entry_points.txt").write_text(entry_points + "\n")

    def plugin(self, name: str, source: str, *, distribution: str = "", **options) -> None:
        """A distribution with one plugin: module ``plug_<name>``, entry point ``name``."""
        module = f"plug_{name}_{distribution}" if distribution else f"plug_{name}"
        self.module(module, source)
        self.distribution(distribution or f"dist-{name}", {name: module}, **options)

    def host(self, **settings) -> PluginHost:
        """A host of its own over what is here."""
        return PluginHost(Settings(**settings))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    found = Site(folder)
    every = metadata.distributions
    monkeypatch.setattr(metadata, "distributions", lambda: every(path=[str(folder)]))
    monkeypatch.syspath_prepend(folder)
    for variable in ("PLUGINS", "DISABLE_PLUGINS", "TRACE", "DEBUG"):
        monkeypatch.delenv(f"METAFORGE_{variable}", raising=False)
    discovery.configure(None)
    discovery.source_hash.cache_clear()
    before = set(sys.modules)
    yield found
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in found.packages:
            del sys.modules[name]
    discovery.configure(None)
    discovery.source_hash.cache_clear()


@pytest.fixture
def fakes(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site with the fake plugin, and the working folder in a fresh one."""
    site.module("fakeplug", FAKE)
    site.module("fakeplug_parts", PARTS)
    site.module("fakeplug_heavy", "")
    site.module("fakeplug_checks", CHECKS)
    site.distribution("fake-dist", {"fake": "fakeplug"}, version="2.1")
    site.plugin("builtin", BUILT_IN, distribution="metaforge")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return site


@pytest.fixture
def write_recipe(tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe; without text, the fake one."""

    def write(text: str = RECIPE, name: str = "fake.yaml") -> Path:
        path = tmp_path / "recipes" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write
