"""The YAML that recipes are written in.

Plain values mean what they look like: ``1e-4`` is a float, ``no``, ``on`` and
``2024-05-01`` are text, ``010`` and ``12:30`` are text, ``true`` and ``null`` are what they
say. These are YAML 1.2's core rules; PyYAML's own are those of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
MAX_DEPTH = 32
#: Far more values than any recipe has; aliases of aliases would pass it fast.
MAX_VALUES = 20_000
#: Digits of the longest whole numbers, each of which a float can hold.
_DIGITS = 300

_IMPLICIT: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*|0x[0-9a-fA-F]+|0o[0-7]+)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
_SHAPES: dict[type, str] = {yaml.MappingNode: "map", yaml.SequenceNode: "seq"}


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The table by first character in which PyYAML keeps its implicit types."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, pattern, first in _IMPLICIT:
        for character in (*first, *([""] if name == "null" else [])):
            table.setdefault(character, []).append((_TAG + name, re.compile(f"(?:{pattern})$")))
    return table


def _read_float(text: str) -> float:
    named = text.lower().lstrip("+-").lstrip(".")
    value = float(named) if named in ("inf", "nan") else float(text)
    return -value if named == "inf" and text.startswith("-") else value


def bounded(value: int) -> int:
    """The number. ``ValueError`` for one that no option can hold, and that Python may refuse to
    print."""
    if abs(value) >= 10**_DIGITS:
        raise ValueError(f"a whole number of more than {_DIGITS} digits has no place in a recipe")
    return value


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda text: None,
    _TAG + "bool": lambda text: text.lower() == "true",
    _TAG + "int": lambda text: bounded(int(text, 0)),
    _TAG + "float": _read_float,
    _TAG + "str": str,
}


class RecipeLoader(yaml.SafeLoader):
    """Composes nodes by the rules above, to a bounded depth and number."""

    yaml_implicit_resolvers = _resolvers()

    def __init__(self, stream: str):
        super().__init__(stream)
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels",
                problem_mark=self.peek_event().start_mark,
            )
        self._nodes += 1
        if self._nodes > MAX_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_VALUES} keys and values",
                problem_mark=self.peek_event().start_mark,
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def check_tag(node: yaml.Node) -> None:
    """``ValueError`` for a tag that recipes do not have: those of Python objects, and others."""
    scalars = _SCALARS if isinstance(node, yaml.ScalarNode) else ()
    if node.tag not in {_TAG + _SHAPES.get(type(node), "none"), *scalars}:
        raise ValueError(f"the tag {node.tag.replace(_TAG, '!!')} has no place in a recipe")


def scalar(node: yaml.ScalarNode) -> Any:
    """A scalar's value; ``ValueError`` for one that its tag does not admit."""
    value = _SCALARS[node.tag](node.value)
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        raise ValueError("text with half a surrogate pair is not valid Unicode")
    return value


class RecipeDumper(yaml.SafeDumper):
    """Writes plain data so that ``RecipeLoader`` reads the same; no anchors."""

    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Unicode's line ends are escaped: where they stand as they are, YAML reads a line feed."""
    style = '"' if re.search("[\r\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


RecipeDumper.add_representer(str, _text_node)


def dump(data: Any) -> str:
    """Plain data as a recipe's text, keys in the order given."""
    return yaml.dump(data, Dumper=RecipeDumper, sort_keys=False, allow_unicode=True, width=100)
