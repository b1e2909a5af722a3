"""The runs of a grid: found, resumed or made. The one part of a comparison that needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metaforge import pipeline, registry, said, seeding, stages
from metaforge.comparison.earlier import EarlierRuns
from metaforge.comparison.grid import Grid
from metaforge.components import Context
from metaforge.console import Console
from metaforge.errors import DamagedFile, MetaforgeError
from metaforge.recipe import ResolvedRecipe
from metaforge.tasks import TaskSource


def facts(grid: Grid, *, quiet: bool = False) -> dict[str, dict[str, Any]]:
    """What only ready components tell of the runs, before any is made: of those of one seed,
    as the others are alike, and nothing where the same components serve all."""
    console = Console(quiet)
    first = next(iter(grid.cells.values())).recipe.seed
    cells = {label: cell for label, cell in grid.cells.items() if cell.recipe.seed == first}
    if len({_served_by(cell) for cell in cells.values()}) == 1:
        return {}
    sources: dict[str, TaskSource] = {}
    found = {}
    for label, cell in cells.items():
        with _named(label):
            found[label] = _facts(cell, sources, console)
    return found


def _served_by(cell: ResolvedRecipe) -> str:
    sections = {"data", "inner", "kernel", "weighting", "precision"}
    made = cell.recipe.model_dump(mode="json", by_alias=True, include=sections)
    return json.dumps([made, cell.recipe.condition.steps > 0], sort_keys=True)


def _facts(
    cell: ResolvedRecipe, sources: dict[str, TaskSource], console: Console
) -> dict[str, Any]:
    recipe = cell.recipe
    context = stages.context_for(recipe, Context(base_dir=cell.base_dir, report=console.line))
    key = json.dumps([recipe.data.model_dump(mode="json"), recipe.precision])
    if key not in sources:
        sources[key] = registry.create_choice("dataset", recipe.data, context)
    source = sources[key]
    inner = registry.create_choice("inner_algorithm", recipe.inner, context)
    inner.init(source.shape, seeding.generator(recipe.seed, "init"))
    kernel = registry.create_choice("task_kernel", recipe.kernel, context)
    weighting = registry.create_choice("task_weighting", recipe.weighting, context)
    transductive = said.reads_other_queries(recipe, inner, kernel, weighting)
    return {
        "transductive": "yes" if transductive else "no",
        f"data fingerprint at seed {recipe.seed}": source.fingerprint[:12],
    }


def make(grid: Grid, *, quiet: bool = False) -> list[Path]:
    """A finished run's folder for every cell, in the grid's order.

    Cells are run one after the other, so that phase 1, where several share it, is trained
    by the first and taken from the cache by the others. An error says which run it stopped.
    """
    console = Console(quiet)
    earlier = EarlierRuns(console.line)
    paths = []
    for number, (label, resolved) in enumerate(grid.cells.items(), start=1):
        which = f"run {number} of {len(grid.cells)}: {label}"
        console.line(which)
        with _named(which):
            paths.append(_made(resolved, earlier, console, quiet))
    return paths


@contextmanager
def _named(which: str) -> Iterator[None]:
    """Say in an error which run it stopped."""
    try:
        yield
    except MetaforgeError as error:
        error.args = (f"{which}: {error}",)
        raise


def _made(resolved: ResolvedRecipe, earlier: EarlierRuns, console: Console, quiet: bool) -> Path:
    found = earlier.find(resolved)
    if found is not None and found.finished:
        console.line(f"taken again: {found.path}")
        return found.path
    if found is not None:
        try:
            return Path(pipeline.resume(found.path, quiet=quiet)["run_dir"])
        except DamagedFile as error:
            console.line(f"note: {found.path} is not taken again: {error}")
    return Path(pipeline.run(resolved, quiet=quiet)["run_dir"])
