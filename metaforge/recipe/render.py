"""pydantic's findings as problems a user can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from metaforge.recipe.document import Key
from metaforge.suggest import did_you_mean

#: Keys that a user may look for and not find, and why.
HINTS: Mapping[Key, str] = {
    ("select", "split"): "selection always uses validation targets, never test: remove the key",
}


def findings(error: ValidationError, model: type[BaseModel], data: Any) -> list[tuple[Key, str]]:
    """Each faulty key of ``data`` once, with what is wrong: the branches of a union are joined."""
    wanted: dict[Key, list[str]] = {}
    found: dict[Key, str] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(data, detail["loc"], is_missing=detail["type"] == "missing")
        message, ending = _worded(detail, path, model)
        messages = wanted.setdefault(path, [])
        if messages:
            message = message.removeprefix("should be ")
        if message not in messages:
            messages.append(message)
        found[path] = ending
    return [(path, ", or ".join(messages) + found[path]) for path, messages in wanted.items()]


def _path_in(data: Any, location: tuple[str | int, ...], is_missing: bool) -> Key:
    """pydantic's location without the steps that are not keys, such as a union's branch."""
    path: list[str | int] = []
    for index, key in enumerate(location):
        if _holds(data, key):
            path.append(key)
            data = data[key]
        elif is_missing and index == len(location) - 1:
            path.append(key)
    return tuple(path)


def _holds(data: Any, key: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(key, int) and key < len(data)
    return isinstance(data, Mapping) and key in data


def _worded(detail: Any, path: Key, model: type[BaseModel]) -> tuple[str, str]:
    """What was expected, and an ending that says what was found."""
    if detail["type"] == "missing":
        return "required, and not given", ""
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, model), ""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"]), ""
    value = detail["input"]
    message = re.sub(r"^\w+ should", "should", detail["msg"]).replace("valid array", "list")
    message = message.replace("be an object", "be keys and values")
    ending = f"; found {shown(value)}"
    if detail["type"] == "literal_error" and isinstance(value, str):
        ending += did_you_mean(value, re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
    if detail["type"] == "int_type" and isinstance(value, float) and value.is_integer():
        ending += f": write {int(value)}"
    return message, ending


def shown(value: Any) -> str:
    """A value as a recipe writes it, cut to a length that fits a line."""
    text = json.dumps(value, default=repr, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown_key(path: Key, model: type[BaseModel]) -> str:
    if path in HINTS:
        return HINTS[path]
    key = str(path[-1])
    known = key_names(_model_at(model, path[:-1]))
    hint = did_you_mean(key, known)
    if not hint:
        elsewhere = [name for name in _dotted_keys(model) if name.endswith(f".{key}")]
        hint = f"; did you mean {' or '.join(map(repr, elsewhere))}?" if elsewhere else ""
    if not hint:
        hint = f" (keys here: {', '.join(known) or 'none'})"
    return f"unknown key{hint}"


def key_names(model: type[BaseModel]) -> list[str]:
    """The keys of a model as users write them."""
    return [info.alias or name for name, info in model.model_fields.items()]


def sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The keys of a model that hold another model, at any depth of their annotation."""
    found = {}
    for name, info in model.model_fields.items():
        for annotation in _flat(info.annotation):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                found[info.alias or name] = annotation
    return found


def _flat(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _flat(argument)


def _model_at(model: type[BaseModel], path: Key) -> type[BaseModel]:
    for key in path:
        if isinstance(key, str):
            model = sections(model).get(key, model)
    return model


def _dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    inner = sections(model)
    for name in key_names(model):
        yield prefix + name
        if name in inner:
            yield from _dotted_keys(inner[name], f"{prefix}{name}.")
