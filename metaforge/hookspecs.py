"""The hooks a plugin may implement, in the order a run meets them.

A plugin is a module (or object) whose functions are marked with
``metaforge.hookimpl`` and named as below. Registration hooks are called once, must
be pure, and must not import torch: a component names its code by a dotted target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from metaforge.components import Component
    from metaforge.errors import Problem
    from metaforge.recipe.schema import Recipe

PROJECT = "metaforge"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# -- registration --------------------------------------------------------------------


@hookspec
def metaforge_datasets() -> Sequence[Component]:
    """Data sets: components whose target returns a ``TaskSource``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_backbones() -> Sequence[Component]:
    """Backbones: components whose target returns a ``Backbone``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_models() -> Sequence[Component]:
    """Models: components whose target returns a ``Model``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_inner_algorithms() -> Sequence[Component]:
    """Inner algorithms: components whose target returns an ``InnerAlgorithm``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_task_kernels() -> Sequence[Component]:
    """Task kernels: components whose target returns a ``TaskKernel``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_task_weightings() -> Sequence[Component]:
    """Task weightings: components whose target returns a ``TaskWeighting``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_trackers() -> Sequence[Component]:
    """Trackers: components whose target returns a ``Tracker``. Since 0.1."""
    raise NotImplementedError


@hookspec
def metaforge_recipes() -> Sequence[Path]:
    """Folders of recipes that ``metaforge cp`` and ``metaforge run NAME`` find. Since 0.1."""
    raise NotImplementedError


# -- command line and recipes --------------------------------------------------------


@hookspec
def metaforge_add_commands(cli: click.Group) -> None:
    """Add commands to the command line: ``cli.add_command(...)``. Since 0.1.

    One with the name of a built-in verb never runs, and is told as the plugin's problem.
    """


@hookspec
def metaforge_check_recipe(recipe: Recipe) -> Sequence[Problem]:
    """Problems of a whole recipe that no single component can see. Since 0.1."""
    raise NotImplementedError


# -- observers -----------------------------------------------------------------------


@hookspec
def metaforge_run_started(run_dir: Path, recipe: Recipe) -> None:
    """A run begins or resumes. Since 0.1."""


@hookspec
def metaforge_meta_step(step: int, metrics: Mapping[str, float]) -> None:
    """Meta-training reached a step at which it records metrics. Since 0.1."""


@hookspec
def metaforge_target_evaluated(record: Mapping[str, Any]) -> None:
    """One target's record is complete, as written to ``targets.jsonl``. Since 0.1."""


@hookspec
def metaforge_run_finished(run_dir: Path, results: Mapping[str, Any]) -> None:
    """A run is complete; ``results`` is what ``results.json`` holds. Since 0.1."""


@hookspec
def metaforge_report_sections(results: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Further sections of the report: pairs of heading and text. Since 0.1."""
    raise NotImplementedError
