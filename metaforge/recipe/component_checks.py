"""The components' own checks of the data they name, run before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from metaforge.components import Context, load_attribute
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError, MetaforgeError, PluginError, Problem, one_line
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


def data_facts(choice: Chosen, context: Context) -> DataFacts | None:
    """What a data set tells of itself before it is loaded; None where it tells nothing, or
    cannot be read, which its check says. Raises ``PluginError`` for a plugin that fails."""
    component = choice.component
    if component.facts is None:
        return None
    try:
        return load_attribute(component.facts)(choice.options, context)
    except MetaforgeError:
        return None
    except Exception as error:
        what = f"facts of {component.kind} {component.name!r}"
        raise PluginError(f"{what} failed: {one_line(error)}") from error


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
