"""What a recipe says that is not the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from metaforge.options import Choice, handed_down
from metaforge.recipe.document import Key, dotted
from metaforge.recipe.resolve import Chosen
from metaforge.recipe.schema import Recipe


def changes(recipe: Recipe, chosen: Iterable[Chosen]) -> dict[str, Any]:
    """Dotted keys and values that differ from the defaults, in the recipe's order.

    A key without a default (``data.use``) always differs. ``published`` is no setting.
    """
    found: dict[str, Any] = {}
    options = {choice.path: choice.options for choice in chosen}
    _compare(recipe, (), options, found)
    found.pop("published", None)
    return found


def _compare(
    model: BaseModel, path: Key, options: Mapping[Key, BaseModel], found: dict[str, Any]
) -> None:
    as_written = model.model_dump(mode="json", by_alias=True)
    for name, info in type(model).model_fields.items():
        value, written = getattr(model, name), as_written[info.alias or name]
        at = (*path, info.alias or name)
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        if isinstance(value, Choice):
            if not isinstance(default, Choice) or value.use != default.use:
                found[dotted((*at, "use"))] = value.use
            if at in options:
                _compare(options[at], at, options, found)
        elif isinstance(value, dict) and any(isinstance(one, Choice) for one in value.values()):
            for label, one in value.items():
                found[dotted((*at, label, "use"))] = one.use
                if (*at, label) in options:
                    _compare(options[*at, label], (*at, label), options, found)
                for handed in handed_down(type(model), name, {}):
                    found.pop(dotted((*at, label, handed)), None)
        elif isinstance(value, BaseModel):
            _compare(value, at, options, found)
        elif info.is_required() or value != default:
            found[dotted(at)] = written
