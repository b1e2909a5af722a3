"""Published figures: which of a recipe's entries are about its settings. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from metaforge.options import nested_kinds
from metaforge.plugins import host
from metaforge.recipe.document import Key, flat
from metaforge.recipe.overrides import options_of
from metaforge.recipe.render import sections
from metaforge.recipe.schema import Published, Recipe
from metaforge.suggest import did_you_mean

#: Lists of sections, whose keys have no dotted name.
_LISTS = ("published", "trackers")


def matching(recipe: Recipe) -> list[Published]:
    """The entries whose every ``when`` is what the complete recipe says, in its order."""
    held = _held(recipe)
    return [
        entry
        for entry in recipe.published
        if all(at[-1] in held and held[at[-1]] == value for at, value in entry.conditions())
    ]


def unknown_keys(recipe: Recipe) -> Iterator[tuple[Key, str]]:
    """(key, message) of every ``when`` that no recipe could fulfil, for it names no option.

    An option of a component that is not in use here is fine: the entry does not match.
    """
    held = _held(recipe)
    for index, entry in enumerate(recipe.published):
        for at, _ in entry.conditions():
            if at[-1] in held:
                continue
            known = dict.fromkeys((*held, *_option_keys(Recipe)))
            if at[-1] not in known:
                hint = did_you_mean(str(at[-1]), known)
                hint = hint or " (expected a dotted key, such as condition.top_m)"
                yield ("published", index, *at), f"unknown key{hint}"


def _held(recipe: Recipe) -> dict[str, Any]:
    held = flat(recipe.model_dump(mode="json", by_alias=True))
    return {key: value for key, value in held.items() if key not in _LISTS}


def _option_keys(
    model: type[BaseModel], prefix: str = "", within: tuple[str, ...] = ()
) -> Iterator[str]:
    """Dotted keys of every option there is, those of all installed components included."""
    kinds, inner = nested_kinds(model), sections(model)
    for name, info in model.model_fields.items():
        key = info.alias or name
        if prefix + key in _LISTS:
            continue
        if name in kinds:
            yield f"{prefix}{key}.use"
            for options in _models_of(kinds[name]) if kinds[name] not in within else ():
                yield from _option_keys(options, f"{prefix}{key}.", (*within, kinds[name]))
        elif key in inner:
            yield from _option_keys(inner[key], f"{prefix}{key}.", within)
        else:
            yield prefix + key


def _models_of(kind: str) -> Iterator[type[BaseModel]]:
    for component, _ in host().components():
        options = options_of(kind, component.name) if component.kind == kind else None
        if options is not None:
            yield options
