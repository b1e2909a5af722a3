"""Validation of a recipe and, through the chosen components' own models, of their options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from metaforge import registry
from metaforge.components import Component
from metaforge.errors import PluginError, Problem, RecipeError
from metaforge.options import (
    Choice,
    Options,
    handed_down,
    holds_names,
    nested_kinds,
    taken_over,
)
from metaforge.recipe.document import Document, Key, dotted, plain
from metaforge.recipe.overrides import default_choice
from metaforge.recipe.paths import Base, absolute_paths, expanded
from metaforge.recipe.render import findings, shown
from metaforge.registry import UnknownComponent

#: A recipe.
M = TypeVar("M", bound=BaseModel)
#: Any model that is validated.
V = TypeVar("V", bound=BaseModel)


class Chosen(NamedTuple):
    """A component that a recipe chose, with its validated options."""

    path: Key
    component: Component
    options: Options


@dataclass
class Resolution(Generic[M]):
    """What a recipe's data came to: ``recipe`` is None if there are problems."""

    recipe: M | None = None
    chosen: list[Chosen] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def resolve(document: Document, base_dir: Path, model: type[M]) -> Resolution[M]:
    """Validate everything, and collect every problem. ``model`` is the kind of recipe: of a
    run, or of pretraining.

    In the recipe that results, each component's options are complete: defaults are
    filled in, nested components included, and paths are absolute.
    """
    resolver = _Resolver[M](document, base_dir)
    recipe = resolver.recipe(model)
    found = resolver.found
    found.problems.extend(resolver.suspects())
    found.recipe = None if found.problems else recipe
    return found


class _Resolver(Generic[M]):
    def __init__(self, document: Document, base_dir: Path):
        self.document = document
        self.base_dir = base_dir
        self.found = Resolution[M]()
        self._suspects: list[str] = []

    def _problem(self, path: Key, message: str, code: int = 2) -> None:
        self.found.problems.append(self.document.problem(path, message, code))

    def suspects(self) -> list[Problem]:
        """The plugins that may have what was not found, once for the whole recipe."""
        return [Problem("", line, code=PluginError.exit_code) for line in self._suspects]

    def recipe(self, model: type[M]) -> M | None:
        data = self._with_components(model, self.document.data, ())
        recipe = self._validated(model, data, ())
        if recipe is None:
            return None
        output = recipe.output  # type: ignore[attr-defined]
        try:
            return recipe.model_copy(update={"output": type(output)(expanded(str(output)))})
        except LookupError as error:
            self._problem(("output",), error.args[0])
            return None

    def _with_components(
        self, model: type[BaseModel], data: Mapping[str, Any], path: Key
    ) -> dict[str, Any]:
        """``data`` with the fields that hold components resolved, defaults included."""
        resolved = dict(data)
        for name, kind in nested_kinds(model).items():
            alias = model.model_fields[name].alias
            key = alias if alias and name not in data else name
            default = default_choice(model, key)
            value = data.get(key, None if default is None else default.model_dump())
            if holds_names(model, name) and isinstance(value, dict):
                handed = handed_down(model, name, data)
                resolved[key] = {
                    label: self._component(kind, item, (*path, key, label), None, handed)
                    for label, item in value.items()
                }
            elif isinstance(value, list):
                resolved[key] = [
                    self._component(kind, item, (*path, key, index), None)
                    for index, item in enumerate(value)
                ]
            elif value is not None:
                resolved[key] = self._component(kind, value, (*path, key), default)
        return resolved

    def _component(
        self,
        kind: str,
        value: Any,
        path: Key,
        default: Choice | None,
        handed: Mapping[str, Any] | None = None,
    ) -> Any:
        """One choice resolved; what is no choice at all is left for the model to refuse.
        ``handed`` are options that its holder hands down."""
        if isinstance(value, str):
            value = {"use": value}
        if not isinstance(value, dict):
            return value
        if default and "use" not in value:
            value = {**default.model_dump(), **value}
        if not isinstance(value.get("use"), str):
            return value
        options = {key: item for key, item in value.items() if key != "use"}
        resolved = self._options(kind, value["use"], options, path, handed or {})
        return {"use": value["use"], **(resolved or {})}

    def _options(
        self,
        kind: str,
        use: str,
        options: Mapping[str, Any],
        path: Key,
        handed: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        try:
            component = registry.get(kind, use)
            expected = component.options_model
        except UnknownComponent as error:
            self._problem((*path, "use"), error.summary, error.exit_code)
            self._suspects = error.suspects
            return None
        except PluginError as error:
            self._problem((*path, "use"), str(error), error.exit_code)
            return None
        if component.absence:
            self._problem((*path, "use"), component.absence, PluginError.exit_code)
        options, contradicting = taken_over(expected, options, handed)
        for name in contradicting:
            message = f"is {shown(handed[name])} for every one of {dotted(path[:-1])}: leave it out"
            self._problem((*path, name), message)
        data = self._with_components(expected, options, path)
        model = self._validated(expected, data, path)
        if model is None:
            return None
        model, unset = absolute_paths(
            model, lambda key: self.document.folder((*path, *key), self.base_dir)
        )
        for key, message in unset:
            self._problem((*path, *key), message, code=3)
        if not unset:
            self.found.chosen.append(Chosen(path, component, model))
        return model.model_dump(mode="json", by_alias=True)

    def _validated(self, model: type[V], data: Mapping[str, Any], path: Key) -> V | None:
        """A recipe is text: it is read strictly, as JSON is, so that 'no' is no False."""
        try:
            given = json.dumps(without_defaults(model, data))
            return model.model_validate_json(given, strict=True)
        except ValidationError as error:
            for key, message in findings(error, model, data):
                self._problem((*path, *key), message)
            return None


def without_defaults(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` without the keys that say what the default says.

    So a complete recipe, with every default written out, is valid wherever the short one
    is, and a model that looks at ``model_fields_set`` sees what the user changed.
    """
    kept = dict(data)
    for name, info in model.model_fields.items():
        if info.is_required():
            continue
        default = info.get_default(call_default_factory=True)
        for key in {name, info.alias or name} & kept.keys():
            if _same(kept[key], default):
                del kept[key]
    return kept


def _same(value: Any, default: Any) -> bool:
    try:
        return json.dumps(plain(value)) == json.dumps(plain(default))
    except RecipeError:  # an array or another object, given from Python
        return False


def checked_options(component: Component, options: Mapping[str, Any], base: Base) -> Options:
    """Options given from Python, validated by the component's own model.

    A relative path starts from the folder ``base(key)``.
    Nested components may be given by name or mapping; what stands in them is validated
    when they are created. Raises ``RecipeError`` with every problem.
    """
    where = f"{component.kind} {component.name!r}"
    expected = component.options_model
    data = dict(options)
    for key in nested_kinds(expected):
        if isinstance(data.get(key), str):
            data[key] = Choice(use=data[key])
    try:
        model = expected.model_validate(without_defaults(expected, data))
    except ValidationError as error:
        found = findings(error, expected, data)
        raise RecipeError([Problem(dotted(key), text, where) for key, text in found]) from None
    if model.validated():
        message = "says validate, which only a run can heed: give the value itself"
        raise RecipeError([Problem("", message, where)])
    model, unset = absolute_paths(model, base)
    if unset:
        raise RecipeError([Problem(dotted(key), text, where, 3) for key, text in unset])
    return model
