"""What a plugin offers: named components.

This module imports neither torch nor pydantic nor any plugin's code: a component names
its options and its code by dotted targets, which are imported when they are first needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from metaforge.errors import PluginError, UnknownName, one_line
from metaforge.suggest import did_you_mean

if TYPE_CHECKING:
    from metaforge.options import Options

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
#: The recipe's words for kinds; users may say either.
ALIASES = {
    "data": "dataset",
    "inner": "inner_algorithm",
    "kernel": "task_kernel",
    "weighting": "task_weighting",
}

#: The plugin interface's version; a component states the one it was written for.
API_VERSION = 1
#: The versions that are served; docs/plugins.md has the policy.
API_SERVED = frozenset({API_VERSION})


def canonical_kind(kind: str, further: tuple[str, ...] = ()) -> str:
    """The kind that a user's word means: ``kernel``, ``kernels``, ``task_kernel``.

    ``further`` are kinds that are none of components. Raises ``UnknownName``.
    """
    kinds = (*KINDS, *further)
    for word in (kind, kind.removesuffix("s")):
        if ALIASES.get(word, word) in kinds:
            return ALIASES.get(word, word)
    raise UnknownName(
        f"unknown kind {kind!r}{did_you_mean(kind, (*kinds, *ALIASES))} (kinds: {', '.join(kinds)})"
    )


def _cache_dir() -> Path:
    """``METAFORGE_CACHE``, or a folder among the user's caches."""
    named = os.environ.get("METAFORGE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "metaforge"


#: Says how many more are done, and a note.
Advance = Callable[..., None]


# Named functions, so that what holds a context can be pickled.
def _silent(line: str) -> None:
    """Report nothing."""


def _unseen(done: int = 1, note: str = "") -> None:
    """Show no progress."""


@contextmanager
def _silent_progress(name: str, total: int, done: int = 0) -> Iterator[Advance]:
    yield _unseen


@dataclass(frozen=True)
class Context:
    """What every component may know of the run that creates it.

    ``base_dir`` is the folder that relative paths in options start from (the
    recipe's); ``device`` and ``dtype`` are names (``"cpu"``, ``"float32"``), so that
    a context can be made without torch; ``mixed`` asks for networks' forward passes in bfloat16
    (``metaforge.precision``); ``report`` takes one line for the user; ``progress(name, total)``
    is a context manager around longer work, whose body calls what it yields, ``advance(n)``:
    the user sees rate and time left.
    """

    seed: int = 0
    base_dir: Path = field(default_factory=Path)
    cache_dir: Path = field(default_factory=_cache_dir)
    device: str = "cpu"
    dtype: str = "float32"
    mixed: bool = False
    report: Callable[[str], None] = _silent
    progress: Callable[..., AbstractContextManager[Advance]] = _silent_progress


@dataclass(frozen=True)
class Component:
    """One thing a plugin offers.

    ``target`` is ``"module:attribute"`` of a callable that takes
    ``(options, context, **nested)`` and returns the ready component. ``options`` is
    ``"module:attribute"`` of a subclass of ``metaforge.options.Options``, or the class
    itself, which suits a plugin of one file; a string spares commands that only list
    components the import. ``check``, if given, is ``"module:attribute"`` of a torch-free
    callable ``(options, context) -> list[str]`` that names every problem of the data
    before any work starts. ``cites`` holds BibTeX entries.

    ``groups``, of a dataset, says whether its tasks have groups (``TaskSource.group_names``):
    yes, no, ``"module:attribute"`` of a torch-free callable ``(options) -> bool``, or None
    where only the loaded data can tell. ``facts``, of a dataset, is ``"module:attribute"`` of a
    torch-free callable ``(options, context) -> DataFacts`` (``metaforge.data_facts``): what a
    mixture has to know of its sources before any is loaded. ``files``, of a dataset of published
    files, is ``"module:attribute"`` of a torch-free callable ``(options, context) -> Placement``
    (``metaforge.placement``): what ``metaforge data`` tells.

    What follows repeats attributes of the target, for commands that do not import it; None
    leaves the question to the run, which also refuses a target that says otherwise. ``tasks``:
    the kind of a dataset's tasks (``("regression",)``), or the kinds that an inner algorithm
    serves. ``target_specific`` and ``learned``: those of a weighting. ``mixed_precision``: that
    of an inner algorithm.
    """

    kind: Kind
    name: str
    target: str
    options: str | type[Options] = "metaforge.options:Options"
    summary: str = ""
    cites: tuple[str, ...] = ()
    api: int = API_VERSION
    check: str | None = None
    groups: bool | str | None = None
    facts: str | None = None
    files: str | None = None
    tasks: tuple[str, ...] | None = None
    target_specific: bool | None = None
    learned: bool | None = None
    mixed_precision: bool | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @cached_property
    def options_model(self) -> type[Options]:
        """The model that validates the options, imported at first use.

        Raises ``PluginError`` if it cannot be imported, or is none that serves a recipe.
        """
        from metaforge.options import fault

        where = f"{self.kind} {self.name!r}"
        model = self.options
        if isinstance(model, str):
            try:
                model = load_attribute(model)
            except (Exception, SystemExit) as error:
                raise PluginError(
                    f"{where}: its options {self.options} cannot be imported: {one_line(error)}"
                ) from error
        if found := fault(model):
            raise PluginError(f"{where}: {found}")
        return model

    def has_groups(self, options: Options) -> bool | None:
        """Whether a dataset's tasks have groups under these options; None for not known yet."""
        if not isinstance(self.groups, str):
            return self.groups
        try:
            return bool(load_attribute(self.groups)(options))
        except Exception as error:
            raise PluginError(
                f"{self.kind} {self.name!r}: {self.groups} failed: {one_line(error)}"
            ) from error

    @cached_property
    def absence(self) -> str:
        """Why the target cannot be imported, as far as can be told without importing it; or
        nothing."""
        from metaforge.importable import obstacle

        found = obstacle(self.target)
        where = f"{self.kind} {self.name!r}: {self.target}"
        return f"{where} cannot be imported: {found}" if found else ""

    def load(self) -> Any:
        """Import the target; errors are the host's to word."""
        return load_attribute(self.target)


def load_attribute(target: str) -> Any:
    """Import ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
