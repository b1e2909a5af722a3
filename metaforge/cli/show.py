"""``metaforge show``."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from metaforge.components import Component
    from metaforge.plugins import PluginRecord

_WORDS = {int: "integer", float: "number", str: "text", bool: "true | false"}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@click.command(short_help="Show a component's options and documentation.")
@click.argument("words", nargs=-1, required=True, metavar="[KIND] NAME")
def command(words: tuple[str, ...]) -> None:
    """Show what a component does, its options and its citations; or a shipped recipe.

    A name that several kinds have shows all; KIND picks one (metaforge show model linear).
    """
    if len(words) > 2:
        raise click.UsageError("expected [KIND] NAME")
    name, kind = words[-1], words[0] if len(words) == 2 else None
    pages = [_page(component, plugin) for component, plugin in _matches(kind, name)]
    if not pages:
        pages = [_recipe(name)]
    click.echo("\n\n".join(pages))


def _matches(kind: str | None, name: str) -> list[tuple[Component, PluginRecord]]:
    from metaforge import registry
    from metaforge.plugins import host

    if kind:
        component = registry.get(kind, name)
        return [(component, registry.owner(component))]
    distribution, _, short = name.rpartition(":")
    return [
        (component, plugin)
        for component, plugin in host().components()
        if component.name == short and distribution in ("", plugin.distribution)
    ]


def _recipe(name: str) -> str:
    from metaforge.plugins import host
    from metaforge.recipe.find import shipped_recipes
    from metaforge.suggest import did_you_mean

    recipes = shipped_recipes()
    if name not in recipes:
        known = [*recipes, *(component.name for component, _ in host().components())]
        raise click.UsageError(
            f"no component or recipe is called {name!r}{did_you_mean(name, known)}"
        )
    texts = [f"# {path}\n{path.read_text(encoding='utf-8')}" for path in recipes[name]]
    return "\n".join(texts)


def _page(component: Component, plugin: PluginRecord) -> str:
    from metaforge.cli.docstrings import docstring_of
    from metaforge.cli.text import indented, table

    rows = list(_option_rows(component.options_model))
    parts = [
        f"{component.kind} {component.name}: {component.summary}\n"
        f"{plugin}; code in {component.target}",
        "Options\n" + indented(table(rows) or "none"),
        indented(docstring_of(component.target)),
        *(entry.strip() for entry in component.cites),
    ]
    return "\n\n".join(part for part in parts if part)


def _option_rows(options: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    from metaforge.options import nested_kinds
    from metaforge.recipe.render import sections

    kinds, inner = nested_kinds(options), sections(options)
    for name, info in options.model_fields.items():
        key = info.alias or name
        described = (info.description or "").strip()
        if name in kinds:
            yield prefix + key, kinds[name], _default(info), described
        elif key in inner:
            yield prefix + key, "keys", "", described
            yield from _option_rows(inner[key], f"{prefix}{key}.")
        else:
            yield prefix + key, _type(info), _default(info), described


def _default(info: FieldInfo) -> str:
    from metaforge.recipe.document import plain
    from metaforge.recipe.render import shown

    if info.is_required():
        return "required"
    value = plain(info.get_default(call_default_factory=True))
    return f"default {value['use'] if isinstance(value, dict) and 'use' in value else shown(value)}"


def _type(info: FieldInfo) -> str:
    return _words(info.annotation) + _bounds(info.metadata)


def _words(annotation: Any) -> str:
    """An annotation as a user would say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if annotation is type(None):
        return "null"
    if origin is Annotated:
        return _words(arguments[0]) + _bounds(arguments[1:])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_words, arguments))
    if origin in (tuple, list, set, frozenset):
        items = dict.fromkeys(_words(item) for item in arguments if item is not Ellipsis)
        return f"list of {' | '.join(items)}"
    return "keys" if origin is dict else getattr(annotation, "__name__", str(annotation)).lower()


def _bounds(metadata: Any) -> str:
    """`` > 0`` of a field that must be positive."""
    found = [
        f" {sign} {getattr(bound, name)}"
        for bound in metadata
        for name, sign in _BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]
    return "".join(found)
