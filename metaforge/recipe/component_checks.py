"""The components' own checks of the data they name, run before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from metaforge.components import Context, load_attribute
from metaforge.errors import DataError, PluginError, Problem, one_line
from metaforge.recipe.document import Document

if TYPE_CHECKING:
    from metaforge.recipe.resolve import Chosen


def component_problems(
    chosen: Iterable[Chosen], document: Document, context: Context
) -> list[Problem]:
    """What the checks find wrong; ``context.report`` is told what they leave to the run."""
    found = []
    for choice in chosen:
        if choice.component.check is None:
            continue
        messages, code = _checked(choice, context)
        found += [document.problem(choice.path, message, code) for message in messages]
    return found


def _checked(choice: Chosen, context: Context) -> tuple[list[str], int]:
    component = choice.component
    assert component.check is not None
    try:
        function: Callable[..., list[str]] = load_attribute(component.check)
        return list(function(choice.options, context)), DataError.exit_code
    except DataError as error:
        return [str(error)], DataError.exit_code
    except Exception as error:
        what = f"check of {component.kind} {component.name!r}"
        return [f"{what} failed: {one_line(error)}"], PluginError.exit_code
