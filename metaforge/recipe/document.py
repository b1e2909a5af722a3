"""A recipe's text as plain data that knows where each key was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from metaforge.errors import Problem, RecipeError
from metaforge.recipe.dialect import (
    MAX_DEPTH,
    MAX_VALUES,
    RecipeLoader,
    bounded,
    check_tag,
    scalar,
)

Key = tuple[str | int, ...]
_SHAPES: dict[type, str] = {list: "a list", str: "text"}


@dataclass
class Document:
    """A recipe's data; ``origins`` says for each key's path where it was written.

    ``given`` holds the paths that an override set, each with the folder that relative paths
    in its value start from.
    """

    data: dict[str, Any]
    origins: dict[Key, str] = field(default_factory=dict)
    given: dict[Key, Path] = field(default_factory=dict)

    def where(self, path: Key) -> str:
        """Where a key was written; of one that was not, where its component was chosen."""
        if path in self.origins:
            return self.origins[path]
        for length in range(len(path) - 1, -1, -1):
            holder = path[:length]
            for key in ((*holder, "use"), holder):
                if key in self.origins:
                    return self.origins[key]
        return ""

    def overridden(self, path: Key) -> bool:
        """Whether an override set the key at ``path``, or one in it."""
        return any(key[: len(path)] == path for key in self.given)

    def folder(self, path: Key, recipe: Path) -> Path:
        """What a relative path at a key starts from: the recipe's folder, or the override's."""
        holders = (path[:length] for length in range(len(path), 0, -1))
        return next((self.given[key] for key in holders if key in self.given), recipe)

    def problem(self, path: Key, message: str, code: int = 2) -> Problem:
        """A problem with the key at ``path``."""
        return Problem(dotted(path), message, self.where(path), code)

    def copy(self) -> Document:
        """An independent copy, for overrides to change."""
        return Document(deepcopy(self.data), dict(self.origins), dict(self.given))


def dotted(path: Key) -> str:
    """``("trackers", 0, "use")`` as ``trackers[0].use``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def flat(recipe: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A recipe's options by dotted key; lists stay whole."""
    found: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def read(text: str, label: str) -> Document:
    """Read a recipe's text; ``label`` names it in problems.

    Raises ``RecipeError`` with every duplicate key and bad value.
    """
    reader = _Reader(label, lines=True)
    data = reader.read(text)
    if not reader.problems and not isinstance(data, dict):
        found = "it is empty" if data is None else f"found {_SHAPES.get(type(data), 'a value')}"
        reader.problems.append(Problem("", f"expected keys and values, {found}", label))
    if reader.problems:
        raise RecipeError(reader.problems)
    return Document(data, {(): f"{label}:1", **reader.origins})


def read_value(text: str, label: str) -> Any:
    """One value, by the same rules: what follows ``=`` in an override."""
    reader = _Reader(label, lines=False)
    value = reader.read(text)
    if reader.problems:
        raise RecipeError(reader.problems)
    return value


class _Reader:
    """Turns YAML nodes into plain data, and notes the line of each key."""

    def __init__(self, label: str, lines: bool):
        self.label, self.lines = label, lines
        self.origins: dict[Key, str] = {}
        self.problems: list[Problem] = []
        self._values = 0

    def read(self, text: str) -> Any:
        try:
            node = RecipeLoader(text).get_single_node()
            return None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            hint = "" if not error.context else f" ({error.context})"
            self._problem((), f"not readable as YAML: {error.problem}{hint}", mark)
        except yaml.YAMLError as error:
            self._problem((), f"not readable as YAML: {str(error).splitlines()[0]}", None)

    def _where(self, mark: yaml.Mark | None) -> str:
        return f"{self.label}:{mark.line + 1 if mark else 1}" if self.lines else self.label

    def _problem(self, path: Key, message: str, mark: yaml.Mark | None) -> None:
        self.problems.append(Problem(dotted(path), message, self._where(mark)))

    def _value(self, node: yaml.Node, path: Key) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_VALUES} values or {MAX_DEPTH} levels once its aliases "
                "are written out",
                problem_mark=node.start_mark,
            )
        try:
            check_tag(node)
            if isinstance(node, yaml.ScalarNode):
                return scalar(node)
        except ValueError as error:
            self._problem(path, str(error), node.start_mark)
            return None
        if isinstance(node, yaml.MappingNode):
            return dict(self._items(node, path))
        return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _items(self, node: yaml.MappingNode, path: Key) -> Iterator[tuple[str, Any]]:
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(path, "a key must be a word", key_node.start_mark)
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                message = f"given twice, the first time in line {lines[key]}"
                self._problem((*path, key), message, key_node.start_mark)
                continue
            lines[key] = line
            self.origins[(*path, key)] = self._where(key_node.start_mark)
            yield key, self._value(value_node, (*path, key))


def plain(value: Any, path: Key = ()) -> Any:
    """A Python value as a recipe could have written it.

    Tuples become lists, paths and models text and mappings, NumPy's numbers Python's.
    Raises ``RecipeError`` for what a recipe cannot hold.
    """
    from numbers import Integral, Real
    from pathlib import PurePath

    from pydantic import BaseModel

    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        try:
            return bounded(int(value))
        except ValueError as error:
            raise RecipeError([Problem(dotted(path), str(error))]) from None
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return {str(key): plain(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, (*path, index)) for index, item in enumerate(value)]
    message = f"a recipe holds text, numbers, lists and mappings, found {type(value).__name__}"
    if hasattr(value, "__array__"):
        message += ": save arrays with numpy.savez, and name the file in data.path"
    raise RecipeError([Problem(dotted(path), message)])
