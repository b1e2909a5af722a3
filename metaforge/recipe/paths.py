"""Files named in a recipe: ``~``, ``$VARIABLE`` and what relative paths start from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from operator import is_
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from metaforge.recipe.document import Key

M = TypeVar("M", bound=BaseModel)
#: The folder that a relative path at a key starts from.
Base = Callable[[Key], Path]
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def expanded(text: str) -> str:
    """``text`` with ``~`` and ``$VARIABLE`` or ``${VARIABLE}`` replaced.

    Raises ``LookupError`` for a variable that is not set, and for what no path can be.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise LookupError(f"${name} is not set: export {name}=/some/folder")
        return os.environ[name]

    if "\0" in text:
        raise LookupError("holds a NUL character, which no path has")
    return os.path.expanduser(_VARIABLE.sub(value, text))


def absolute_paths(options: M, base: Base) -> tuple[M, list[tuple[Key, str]]]:
    """``options`` with every ``Path`` in it made absolute, from the folder ``base(key)``.

    Also returns what is wrong, as (key, message): variables that are not set.
    """
    problems: list[tuple[Key, str]] = []
    return _absolute(options, base, (), problems), problems


def _absolute(value: Any, base: Base, at: Key, problems: list[tuple[Key, str]]) -> Any:
    if isinstance(value, Path):
        try:
            return Path(os.path.abspath(base(at) / expanded(str(value))))
        except LookupError as error:
            problems.append((at, error.args[0]))
            return value
    if isinstance(value, BaseModel):
        keys = {name: info.alias or name for name, info in type(value).model_fields.items()}
        parts = {name: getattr(value, name) for name in keys}
        moved = {n: _absolute(part, base, (*at, keys[n]), problems) for n, part in parts.items()}
        changed = {name: part for name, part in moved.items() if part is not parts[name]}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, tuple | list):
        items = [_absolute(item, base, (*at, index), problems) for index, item in enumerate(value)]
        return value if all(map(is_, items, value)) else type(value)(items)
    if isinstance(value, Mapping):
        return {k: _absolute(v, base, (*at, str(k)), problems) for k, v in value.items()}
    return value
