"""What a plugin offers: named components, each with a model of its options.

This module imports neither torch nor any plugin's code: a component is described
by a dotted target that is imported only when the component is created.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pydantic.config import JsonDict

Kind = Literal[
    "dataset",
    "backbone",
    "model",
    "inner_algorithm",
    "task_kernel",
    "task_weighting",
    "tracker",
]
KINDS: tuple[str, ...] = get_args(Kind)

#: The plugin interface's version; a component states the one it was written for.
API_VERSION = 1


class Options(BaseModel):
    """Base of every component's options: frozen, and no unknown keys.

    Describe each field (``Field(description=...)``): ``metaforge show`` prints it.
    """

    # Built at first use: commands that only list things need no validators.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


class Choice(BaseModel):
    """A component chosen by name, with its options beside ``use``."""

    model_config = ConfigDict(frozen=True, extra="allow")

    use: str

    @property
    def options(self) -> dict[str, Any]:
        """The chosen component's own options, as written."""
        return dict(self.__pydantic_extra__ or {})


def choice(kind: Kind, default: str | None = None, *, description: str = "") -> Any:
    """A field that holds a nested component of the given kind.

    ``model: Choice = choice("model", "linear")`` lets a recipe say
    ``model: {use: mlp, hidden: [64]}``; the nested options are validated by the chosen
    component's own model, and the ready component reaches the target as a keyword.
    """
    extra: JsonDict = {"component_kind": kind}
    if default is None:
        return Field(description=description, json_schema_extra=extra)
    return Field(
        default_factory=lambda: Choice(use=default),
        description=description,
        json_schema_extra=extra,
    )


def nested_kinds(options: type[BaseModel]) -> dict[str, str]:
    """The fields of an options model that hold components: ``{field: kind}``."""
    found = {}
    for name, info in options.model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "component_kind" in extra:
            found[name] = str(extra["component_kind"])
    return found


def _cache_dir() -> Path:
    """``METAFORGE_CACHE``, or a folder among the user's caches."""
    named = os.environ.get("METAFORGE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "metaforge"


def _silent(line: str) -> None:
    """Report nothing. A named function, so that what holds a context can be pickled."""


@dataclass(frozen=True)
class Context:
    """What every component may know of the run that creates it.

    ``base_dir`` is the folder that relative paths in options start from (the
    recipe's); ``device`` and ``dtype`` are names (``"cpu"``, ``"float32"``), so that
    a context can be made without torch; ``report`` takes one line for the user.
    """

    seed: int = 0
    base_dir: Path = field(default_factory=Path)
    cache_dir: Path = field(default_factory=_cache_dir)
    device: str = "cpu"
    dtype: str = "float32"
    report: Callable[[str], None] = _silent


@dataclass(frozen=True)
class Component:
    """One thing a plugin offers.

    ``target`` is ``"module:attribute"`` of a callable that takes
    ``(options, context, **nested)`` and returns the ready component; ``check``, if
    given, is ``"module:attribute"`` of a torch-free callable ``(options, context) ->
    list[str]`` that names every problem of the data before any work starts.
    ``cites`` holds BibTeX entries.
    """

    kind: Kind
    name: str
    target: str
    options: type[Options] = Options
    summary: str = ""
    cites: tuple[str, ...] = ()
    api: int = API_VERSION
    check: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    def load(self) -> Any:
        """Import the target; errors are the host's to word."""
        return load_attribute(self.target)


def load_attribute(target: str) -> Any:
    """Import ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
