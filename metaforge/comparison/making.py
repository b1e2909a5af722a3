"""The runs of a grid: found, resumed or made. The one part of a comparison that needs torch."""

from __future__ import annotations

from pathlib import Path

from metaforge import pipeline
from metaforge.comparison.earlier import EarlierRuns
from metaforge.comparison.grid import Grid
from metaforge.console import Console
from metaforge.errors import MetaforgeError
from metaforge.recipe import ResolvedRecipe


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
        try:
            paths.append(_made(resolved, earlier, console, quiet))
        except MetaforgeError as error:
            error.args = (f"{which}: {error}",)
            raise
    return paths


def _made(resolved: ResolvedRecipe, earlier: EarlierRuns, console: Console, quiet: bool) -> Path:
    found = earlier.find(resolved)
    if found is None:
        return Path(pipeline.run(resolved, quiet=quiet)["run_dir"])
    if found.finished:
        console.line(f"taken again: {found.path}")
        return found.path
    return Path(pipeline.resume(found.path, quiet=quiet)["run_dir"])
