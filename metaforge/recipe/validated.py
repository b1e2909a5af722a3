"""``validate`` as the value of an option: it is chosen on validation targets.

A component's options say which of them are to be chosen, and among which values
(``Options.validated``); the engine knows neither names nor values. They move to
``select.grid`` before anything else reads the recipe, so that the complete recipe shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metaforge.recipe.document import Document, Key, dotted
from metaforge.recipe.overrides import Override, holder
from metaforge.recipe.resolve import Chosen


def expand(document: Document, chosen: Iterable[Chosen]) -> list[str]:
    """Move what the options of ``chosen`` say into the grid; a note for each component.

    Values that the grid has already stay: they are the recipe's own.
    """
    notes = []
    for path, _, options in chosen:
        found = options.validated()
        if found is None:
            continue
        said = [dotted((*path, name)) for name in found.instead]
        where = document.where((*path, next(iter(found.instead))))
        _at(document, path).update(found.instead)
        for name, values in found.tries.items():
            at = ("select", "grid", dotted((*path, name)))
            grid = holder(document, Override(at, values, where))
            if at[-1] not in grid:
                grid[at[-1]] = list(values)
                document.origins[at] = where
        told = ", ".join(f"select.grid.{dotted((*path, name))}" for name in found.tries)
        notes.append(f"{', '.join(said)}: validate stands for {told}")
    return notes


def _at(document: Document, path: Key) -> dict[str, Any]:
    """The mapping in which a chosen component's options are written."""
    section: Any = document.data
    for key in path:
        section = section[key]
    return section
