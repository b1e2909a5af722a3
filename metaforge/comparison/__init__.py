"""Methods side by side: runs compared on the same frozen targets, pair by pair.

One way through: ``grid`` (the recipes of a grid) -> ``making`` (their runs) -> ``runs``
(folders read) -> ``methods`` (rows: runs of all seeds) -> ``alike`` (may they be compared?)
-> ``table`` (figures) -> ``render``, ``save``. All but ``making`` are torch-free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaforge.comparison import given
from metaforge.errors import DataError

if TYPE_CHECKING:
    from metaforge.comparison.grid import Over, Source
    from metaforge.comparison.methods import Method
    from metaforge.recipe.overrides import Change

__all__ = ["compare_grid", "compare_runs"]


def compare_runs(
    paths: Iterable[str | Path], *, out: str | Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Compare finished runs, from their folders; what ``comparison.json`` holds, plus ``out``.

    Runs that differ in nothing but their seed are one method. The files go to ``out``, or
    to a new folder beside the first run. Raises ``DataError`` for runs that are unfinished
    or damaged, and, unless forced, for runs that are unlike.
    """
    out = _out(out)
    folders = [given.path(path, "the folder of a finished run") for path in paths]
    if not folders:
        raise DataError("nothing to compare: give the folders of finished runs")
    return _saved(*_compared(folders, (), force), folders[0].parent, out)


def compare_grid(
    recipe: Source,
    overrides: Change | Iterable[Change] = (),
    *,
    over: Over | None = None,
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Compare what a recipe gives when some of its keys vary, under several seeds.

    ``over`` maps dotted keys to values; every combination is a method. Runs that were made
    before are taken again, stopped ones resumed, missing ones made. Every problem of every
    recipe, and what would make the runs unlike, is raised before the first begins.
    """
    from metaforge.comparison import alike, grid, save
    from metaforge.recipe.overrides import as_texts

    out, over = _out(out), given.over_values(over)
    cells = grid.expand(recipe, as_texts(overrides), over, given.seed_list(seeds))
    planned = {
        label: resolved.recipe.model_dump(mode="json", by_alias=True)
        for label, resolved in cells.cells.items()
    }
    _refuse(alike.planned_differences(planned, over), force)
    if out is not None:
        save.make_folder(out)
    from metaforge.comparison import making

    if not force:
        _refuse(alike.unequal(making.facts(cells, quiet=quiet)), force)
    paths = making.make(cells, quiet=quiet)
    found, rows = _compared(paths, over, force)
    found["notes"] = [*cells.notes, *found["notes"]]
    return _saved(found, rows, paths[0].parent, out)


def _compared(
    paths: Sequence[Path], varied: Collection[str], force: bool
) -> tuple[dict[str, Any], list[Method]]:
    from metaforge.comparison import alike, methods, runs, table

    finished = runs.read_runs(paths)
    alike.refuse_other_metric(finished)
    rows = methods.grouped(finished)
    unlike = alike.differences(rows, varied)
    _refuse(unlike, force)
    return {**table.tabulate(rows), "unlike": unlike}, rows


def _refuse(unlike: Sequence[str], force: bool) -> None:
    if unlike and not force:
        raise DataError(
            "these runs are unlike, so a difference between them may not be the methods':\n  "
            + "\n  ".join(unlike)
            + "\nmake them alike, or give --force to compare anyway, which the table will say"
        )


def _out(out: str | Path | None) -> Path | None:
    return None if out is None else given.path(out, "out, the table's folder,")


def _saved(
    found: dict[str, Any], rows: Sequence[Method], output: Path, out: Path | None
) -> dict[str, Any]:
    from metaforge.comparison import save

    folder = save.default_folder(output, found) if out is None else out
    save.save(found, rows, folder)
    return {**found, "out": str(folder)}
