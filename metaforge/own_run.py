"""A recipe whose data are a data set of Python: kept as files, so that the run can be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metaforge.components import Context
from metaforge.console import Console
from metaforge.own_data import gathered, keep
from metaforge.own_tasks import are_tasks, gathered_tasks
from metaforge.recipe import load
from metaforge.recipe.overrides import Change, as_texts


def data_changes(
    data: Any, recipe: Any, changes: Iterable[Change], *, quiet: bool = False
) -> dict[str, Any]:
    """What makes a recipe read data of Python, samples or ready tasks: they are kept below the
    recipe's ``output``.

    Raises ``RecipeError`` for a recipe that is not valid, before the data are read.
    """
    use = "ready" if are_tasks(data) else "arrays"
    given = as_texts(changes)
    resolved = load(recipe, [*given, f"data.use={use}"], check=False)
    console = Console(quiet)
    context = Context(report=console.line, progress=console.progress)
    if use == "ready":
        draw = resolved.recipe.data.options.get("draw")
        found, named = gathered_tasks(data, draw, context), {}
    else:
        found = gathered(data, context)
        named = {f"data.{name}": name for name in found}
    place = keep(found, Path(resolved.recipe.output).absolute() / "data")
    return {"data.use": use, "data.path": str(place), **named}
