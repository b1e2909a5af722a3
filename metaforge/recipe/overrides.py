"""``key.path=value``: changes to a recipe's data before it is validated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from metaforge import registry
from metaforge.errors import PluginError, Problem, RecipeError
from metaforge.options import Choice, Options, holds_names, nested_kinds
from metaforge.recipe.document import Document, Key, dotted, plain, read_value
from metaforge.recipe.render import key_names, sections, shown
from metaforge.recipe.schema import Recipe

#: A change as it is given: ``key=value``, or a mapping of dotted keys to values.
Change = str | Mapping[str, Any]


class Override(NamedTuple):
    """A value for one key; ``label`` names it in problems."""

    path: tuple[str, ...]
    value: Any
    label: str


def split_key(key: str) -> tuple[str, ...]:
    """A dotted key's parts. The keys of ``select.grid`` are dotted keys themselves."""
    grid = "select.grid."
    if key.startswith(grid):
        return "select", "grid", key.removeprefix(grid)
    return tuple(key.split("."))


def as_texts(changes: Change | Iterable[Change]) -> tuple[str, ...]:
    """Changes as ``key=value`` texts: such texts themselves, and mappings of dotted keys to
    values. One alone may stand without a list. Raises ``RecipeError`` for anything else."""
    if isinstance(changes, str | Mapping):
        changes = (changes,)
    elif not isinstance(changes, Iterable):
        raise _no_change(changes)
    texts: list[str] = []
    for change in changes:
        if isinstance(change, str):
            texts.append(change)
        elif isinstance(change, Mapping):
            texts += [
                f"{key}={json.dumps(value, ensure_ascii=False)}"
                for key, value in plain(change).items()
            ]
        else:
            raise _no_change(change)
    return tuple(texts)


def _no_change(found: Any) -> RecipeError:
    return RecipeError(
        "changes to a recipe are texts such as 'condition.steps=50', or mappings such as "
        f"{{'condition.steps': 50}}; found {type(found).__name__}"
    )


def parse(text: str) -> Override:
    """Read ``key=value``: split at the first ``=``, the value read as in a recipe."""
    label = f"override {text!r}"
    key, equals, value = text.partition("=")
    path = split_key(key.strip())
    if not equals or not all(path):
        raise RecipeError([Problem("", "expected key=value, such as condition.steps=50", label)])
    return Override(path, read_value(value, label), label)


def nested(overrides: Iterable[Override]) -> dict[str, Any]:
    """Values by keys, those of a dotted key in mappings: the later ones win."""
    found: dict[str, Any] = {}
    for override in overrides:
        *path, last = override.path
        place = found
        for key in path:
            place = place.setdefault(key, {})
        place[last] = override.value
    return found


def parse_all(texts: Iterable[str]) -> list[Override]:
    """Read overrides, and raise the problems of all at once."""
    parsed, problems = [], []
    for text in texts:
        try:
            parsed.append(parse(text))
        except RecipeError as error:
            problems += error.problems
    if problems:
        raise RecipeError(problems)
    return parsed


def apply(document: Document, overrides: Iterable[Override], folder: Path) -> list[str]:
    """Change ``document``; returns a note for each option that a change of component drops.

    Relative paths in the overrides start from ``folder``, wherever the recipe lies.
    An override that changes a section's ``use`` keeps what the recipe says beside it
    where the new component has such an option, and drops the rest. Options that an
    override gave are never dropped. Raises ``RecipeError`` where a key cannot be reached.
    """
    notes: list[str] = []
    problems: list[Problem] = []
    for override in overrides:
        if isinstance(override.value, str) and kind_at(document.data, override.path):
            override = Override((*override.path, "use"), override.value, override.label)
        try:
            section = holder(document, override)
        except LookupError as error:
            problems.append(Problem(".".join(override.path), error.args[0], override.label))
            continue
        if override.path[-1] == "use":
            notes += _drop_foreign(document, section, override)
        _set(document, section, override, folder)
    if problems:
        raise RecipeError(problems)
    return notes


def holder(document: Document, override: Override) -> dict[str, Any]:
    """The mapping that holds the override's key; made where the recipe has none yet.

    Raises ``LookupError`` where the recipe holds something else on the way.
    """
    section = document.data
    for depth, key in enumerate(override.path[:-1], start=1):
        path = override.path[:depth]
        inner = section.get(key)
        if inner is None:
            inner = {}
            document.origins[path] = override.label
        elif isinstance(inner, str) and kind_at(document.data, path):
            inner = {"use": inner}
        elif not isinstance(inner, dict):
            raise LookupError(f"{dotted(path)} holds {shown(inner)}, not keys")
        section[key] = inner
        section = inner
    return section


def _set(document: Document, section: dict[str, Any], override: Override, folder: Path) -> None:
    path = override.path
    for known in (document.origins, document.given):
        for key in [key for key in known if key[: len(path)] == path]:
            del known[key]
    section[path[-1]] = override.value
    document.origins[path] = override.label
    document.given[path] = folder


def _drop_foreign(document: Document, section: dict[str, Any], override: Override) -> list[str]:
    """Remove the recipe's options that the newly chosen component does not have."""
    at = override.path[:-1]
    kind = kind_at(document.data, at)
    options = options_of(kind, override.value) if kind else None
    if options is None:
        return []  # not a component, or not to be had: for validation to report
    known = {"use", *options.model_fields, *key_names(options)}
    foreign = [key for key in section if key not in known and not document.overridden((*at, key))]
    for key in foreign:
        del section[key]
    return [
        f"{override.label} drops {dotted((*at, key))}: {kind} {override.value!r} has no such option"
        for key in foreign
    ]


def options_of(kind: str, name: Any) -> type[Options] | None:
    """The model of a component's options, or None where it is not to be had."""
    try:
        return registry.get(kind, name).options_model if isinstance(name, str) else None
    except PluginError:
        return None


def kind_at(data: Mapping[str, Any], path: Key) -> str | None:
    """The kind of component that the key at ``path`` holds, if it holds one."""
    model: type[BaseModel] | None = Recipe
    kind = None
    names_of: str | None = None  # the kind of what the next key names
    here: Any = data
    for key in path:
        if model is None or not isinstance(key, str):
            return None
        here = here.get(key) if isinstance(here, Mapping) else None
        if names_of is not None:
            kind, names_of = names_of, None
            model = options_of(
                kind, here["use"] if isinstance(here, Mapping) and "use" in here else here
            )
            continue
        kind = nested_kinds(model).get(key)
        if kind is None:
            model = sections(model).get(key)
        elif holds_names(model, key):
            kind, names_of = None, kind
        else:
            model = options_of(kind, chosen_name(model, key, here))
    return kind


def chosen_name(model: type[BaseModel], key: str, value: Any) -> str | None:
    """The component that a key's value names, or else the key's default does."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "use" in value:
        return value["use"]
    default = default_choice(model, key)
    return default.use if default else None


def default_choice(model: type[BaseModel], key: str) -> Choice | None:
    """The component that a key holds if nothing is said."""
    for name, info in model.model_fields.items():
        if key in (name, info.alias):
            default = info.get_default(call_default_factory=True)
            return default if isinstance(default, Choice) else None
    return None
