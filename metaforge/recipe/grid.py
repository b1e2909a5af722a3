"""Problems of what selection tries: every value of its grid, as if it were an override."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from metaforge.errors import MetaforgeError, RecipeError
from metaforge.options import Choice
from metaforge.plugins import host
from metaforge.recipe.checks import Found, setting
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.overrides import split_key
from metaforge.recipe.render import key_names, sections, shown
from metaforge.recipe.schema import Recipe
from metaforge.recipe.trials import SELECTABLE, STEPS, Trials

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe

#: Those that a learned weighting is fitted by, and so phase 1 depends on.
LEARNED_FROM = ("kernel", "weighting")
#: Combinations of a grid that are validated before the run; more would take seconds.
MAX_COMBINATIONS = 500
#: No grid that is meant has as many.
_MOST_COMBINATIONS = 10**6

LEARNED = (
    "weighting {!r} is learned in phase 1, by the options of weighting and kernel, and selection "
    "comes after it: compare whole runs instead, metaforge compare RECIPE --over KEY=VALUE,VALUE"
)


def problems(resolved: ResolvedRecipe) -> Found:
    """(key, message) of each key and value that cannot be selected, and of the first of their
    combinations that cannot."""
    if resolved.recipe.select is None:
        return
    grid = resolved.recipe.select.grid
    if not grid:
        message = "it is empty, so that nothing is chosen: give a key and its values"
        yield ("select", "grid"), message
    known = set(_messages(resolved, thorough=True)) if grid else set()
    sound = True
    for key, values in grid.items():
        wider = [other for other in grid if key.startswith(f"{other}.")]
        if wider:
            sound = False
            yield ("select", "grid", key), f"is a part of {wider[0]}, which is there too: give one"
            continue
        for message in _of_key(resolved, key, values, known):
            sound = False
            yield ("select", "grid", key), message
    if sound:
        trials = Trials(resolved.recipe)
        dear = list(_cost(trials))
        yield from dear or _combined(resolved, trials, known, slice(MAX_COMBINATIONS))


def beyond_validated(resolved: ResolvedRecipe) -> Found:
    """The same of the combinations that ``problems`` leaves out: the run's to find, at once."""
    known = set(_messages(resolved, thorough=False))
    yield from _combined(resolved, Trials(resolved.recipe), known, slice(MAX_COMBINATIONS, None))


def _combined(resolved: ResolvedRecipe, trials: Trials, known: set[str], some: slice) -> Found:
    """What is wrong with the first combination that is, of some of those that will be tried."""
    steps = {STEPS: trials.steps[-1]} if len(trials.steps) > 1 else {}
    for combination in trials.combinations[some]:
        for message in _faults(resolved, {**combination, **steps}, known, thorough=False):
            yield ("select", "grid"), f"{shown(combination)}: {message}"
            return


def _cost(trials: Trials) -> Found:
    """A grid that no computer holds; a budget for less than a choice."""
    select = trials.recipe.select
    assert select is not None
    needed = min(2, trials.in_grid)
    if trials.in_grid > _MOST_COMBINATIONS:
        most = f"{_MOST_COMBINATIONS:,} at most"
        yield ("select", "grid"), f"{trials.in_grid:,} combinations, {most}: give fewer values"
    elif trials.count < needed:
        yield (
            ("select", "budget"),
            f"{needed} of the grid's {trials.in_grid} combinations on {select.targets} targets "
            f"take {needed * select.targets} conditionings: give as many, or fewer select.targets",
        )


def _of_key(
    resolved: ResolvedRecipe, key: str, values: tuple[Any, ...], known: set[str]
) -> Iterator[str]:
    section = split_key(key)[0]
    if (options := _section(key)) is not None:
        yield f"is a section: name its options, such as {key}.{next(iter(options))}"
    elif section not in SELECTABLE:
        yield f"only options of {', '.join(SELECTABLE)} can be selected"
    elif section in LEARNED_FROM and _learned(resolved):
        yield LEARNED.format(resolved.recipe.weighting.use)
    else:
        for value in values:
            for message in _faults(resolved, {key: value}, known, thorough=True):
                yield f"{shown(value)}: {message}"


def _section(key: str) -> Iterable[str] | None:
    """The options of a section of recipes; None for a key that is none."""
    model: type[BaseModel] | None = Recipe
    for part in split_key(key):
        model = sections(model).get(part) if model is not None else None
    is_choice = model is not None and issubclass(model, Choice)
    return None if model is None or is_choice else key_names(model)


def _learned(resolved: ResolvedRecipe) -> bool:
    """Whether the weighting is one that phase 1 learns; a plugin may leave that to the run."""
    chosen = next(choice for choice in resolved.chosen if choice.path == ("weighting",))
    return bool(chosen.component.learned)


def _faults(
    resolved: ResolvedRecipe, values: dict[str, Any], known: set[str], *, thorough: bool
) -> list[str]:
    """What becomes wrong with the recipe once ``values`` are set in it."""
    try:
        candidate = resolved.with_values(values)
        found = _messages(candidate, thorough=thorough)
    except RecipeError as error:
        return [f"{found.path}: {found.message}" for found in error.problems if found.path]
    except MetaforgeError as error:
        return [str(error)]
    if candidate.validates:  # those of the recipe itself have moved to the grid before
        return ["validate asks for a choice, and these are the values chosen from: list its own"]
    if _learned(candidate) and not _learned(resolved):
        return [LEARNED.format(candidate.recipe.weighting.use)]
    return [message for message in found if message not in known]


def _messages(resolved: ResolvedRecipe, *, thorough: bool) -> list[str]:
    """What is wrong with a setting between its sections and, if ``thorough``, by the plugins'
    checks of whole recipes and of the components that selection may vary."""
    found = [message for _, message in setting(resolved)]
    if thorough:
        varied = [choice for choice in resolved.chosen if choice.path[0] in SELECTABLE]
        recipe = resolved.recipe
        for problem in (
            *component_problems(varied, resolved.document, resolved.context()),
            *host().problems(recipe),
        ):
            found.append(f"{problem.path}: {problem.message}")
    return found
