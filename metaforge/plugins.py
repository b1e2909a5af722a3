"""The plugin host: loads plugins in isolation, and calls their hooks.

Each plugin lives under a pluggy manager of its own. So a plugin that fails leaves
nothing behind, an exception names the plugin it came from, and no result hangs on the
order of plugins: components are chosen by name, in the recipe.

``metaforge.discovery`` tells which plugins take part. ``METAFORGE_TRACE=1`` prints every
hook call and its result to stderr.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pluggy

from metaforge import hookspecs
from metaforge.components import API_SERVED, KINDS, Component
from metaforge.discovery import (
    Found,
    Settings,
    current_settings,
    find_file,
    find_installed,
    source_hash,
)
from metaforge.errors import PluginError, Problem, one_line
from metaforge.suggest import did_you_mean

if TYPE_CHECKING:
    import click

    from metaforge.recipe.schema import Recipe

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("metaforge_"))
#: The hook that registers each kind of component.
REGISTRATION = {f"metaforge_{kind}s": kind for kind in KINDS}
_NAME = re.compile(r"[\w.-]+")
_TARGET = re.compile(r"[\w.]+:\w+")


class PluginRecord(NamedTuple):
    """What is known of one plugin, loaded or not; ``reason`` says why it is not.

    ``problems`` are faults of a loaded one that keep a part of it from working.
    """

    name: str
    distribution: str
    version: str
    state: Literal["loaded", "blocked", "failed"]
    reason: str = ""
    package: str = ""
    components: tuple[Component, ...] = ()
    hooks: tuple[str, ...] = ()
    recipe_dirs: tuple[Path, ...] = ()
    commands: Mapping[str, click.Command] = MappingProxyType({})
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.distribution} {self.version}".rstrip() + ")"

    @property
    def interfaces(self) -> tuple[int, ...]:
        """The versions of the plugin interface that its components are written for."""
        return tuple(sorted({component.api for component in self.components}))

    @property
    def source_hash(self) -> str:
        """A hash of the package's files, for cache keys; empty where none was found."""
        return source_hash(self.package) if self.package else ""


class _Plugin:
    """A plugin's object under its own pluggy manager."""

    def __init__(self, found: Found, trace: bool):
        self.object = found.load()
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        implemented = set(self._implemented())
        self.hooks = tuple(name for name in HOOKS if name in implemented)
        if not self.hooks:
            raise PluginError("it implements no hook: mark its functions with @metaforge.hookimpl")
        self._manager.add_hookspecs(_specs(self.hooks))
        if trace:
            self._manager.add_hookcall_monitoring(*_tracer(found.id))
        self._manager.register(self.object, name=found.id)

    def _caller(self, hook: str) -> pluggy.HookCaller:
        return getattr(self._manager.hook, hook)

    def _implemented(self) -> Iterator[str]:
        """The hooks that the plugin's functions are marked as.

        Raises ``PluginError`` for what pluggy passes over in silence, such as a misspelled one.
        """
        for name in dir(self.object):
            marks = self._manager.parse_hookimpl_opts(self.object, name)
            if marks is None:
                if name in HOOKS and callable(getattr(self.object, name)):
                    raise PluginError(f"{name} is not marked with @metaforge.hookimpl")
                continue
            hook = marks.get("specname") or name
            if hook not in HOOKS and not marks["optionalhook"]:
                raise PluginError(f"unknown hook {hook!r}{did_you_mean(hook, HOOKS)}")
            if marks["wrapper"] or marks["hookwrapper"]:
                raise PluginError(f"{name} is a wrapper: a plugin's hooks are called on their own")
            yield hook

    def call(self, hook: str, **arguments: Any) -> list[Any]:
        """The results of the plugin's functions for one hook, those of None left out."""
        return self._caller(hook)(**arguments)

    def register(self, hook: str, expected: str, good: Callable[[Any], bool]) -> list[Any]:
        """What a registration hook returned: lists whose every item must be ``good``."""
        if hook not in self.hooks:
            return []
        results = self.call(hook)
        if len(results) < len(self._caller(hook).get_hookimpls()):
            results = [None]
        items: list[Any] = []
        for result in results:
            if not isinstance(result, list | tuple):
                raise PluginError(f"{hook} returned {result!r}, not a list of {expected}")
            items += result
        for item in items:
            if not good(item):
                raise PluginError(f"{hook} returned {item!r} among its {expected}")
        return items

    def components(self) -> tuple[Component, ...]:
        found: dict[tuple[str, str], Component] = {}
        for hook, kind in REGISTRATION.items():
            for item in self.register(hook, "Components", lambda c: isinstance(c, Component)):
                _refuse_bad_component(hook, kind, item)
                if item.key in found:
                    raise PluginError(f"{hook} returned {item.kind} {item.name!r} twice")
                found[item.key] = item
        return tuple(found.values())

    def recipe_dirs(self) -> tuple[Path, ...]:
        def is_folder(item: Any) -> bool:
            return isinstance(item, Path) and item.is_dir()

        return tuple(self.register("metaforge_recipes", "folders (as Paths)", is_folder))

    def commands(self) -> Mapping[str, click.Command]:
        if "metaforge_add_commands" not in self.hooks:
            return {}
        import click

        group = click.Group()
        self.call("metaforge_add_commands", cli=group)
        return group.commands


def _specs(hooks: Sequence[str]) -> ModuleType:
    """The specifications of some hooks: to read all of them for each plugin takes longer
    than all else that a plugin's loading does."""
    specs = ModuleType(hookspecs.__name__)
    for hook in hooks:
        setattr(specs, hook, getattr(hookspecs, hook))
    return specs


def _refuse_bad_component(hook: str, kind: str, component: Component) -> None:
    name = f"{component.kind} {component.name!r}"
    if component.kind != kind:
        raise PluginError(f"{hook} returned a {name}, expected kind {kind!r}")
    if component.api not in API_SERVED:
        served = " and ".join(map(str, sorted(API_SERVED)))
        raise PluginError(
            f"{name} is written for plugin interface {component.api}, and this metaforge serves "
            f"{served}: {_older_or_newer(component.api)}"
        )
    if not _NAME.fullmatch(component.name):
        raise PluginError(f"{hook} returned {name}: a name is letters, digits and . _ -")
    options = component.options if isinstance(component.options, str) else None
    groups = component.groups if isinstance(component.groups, str) else None
    for target in (component.target, component.check, options, groups):
        if target is not None and not _TARGET.fullmatch(target):
            raise PluginError(f"{name}: {target!r} is not of the form 'module:attribute'")
    if not set(component.tasks or ()) <= {"classification", "regression"}:
        raise PluginError(
            f"{name}: tasks is {component.tasks!r}, expected kinds of tasks, such as "
            "('classification',)"
        )
    if options is None:
        _ = component.options_model  # refuses a bad class


def _older_or_newer(api: int) -> str:
    """What to do about a component of an interface that is not served."""
    newest = max(API_SERVED)
    return "a newer metaforge serves it" if api > newest else "the plugin needs a newer version"


def _without_verbs(
    commands: Mapping[str, click.Command],
) -> tuple[Mapping[str, click.Command], tuple[str, ...]]:
    """The commands that can be called, and a problem for each that a built-in verb hides."""
    if not commands:
        return commands, ()
    from metaforge.cli.app import VERBS

    good = {name: command for name, command in commands.items() if name not in VERBS}
    hidden = sorted(set(commands) - set(good))
    return good, tuple(
        f"its command {name!r} never runs, as a built-in verb has this name: rename it"
        for name in hidden
    )


def _tracer(plugin: str) -> tuple[Callable[..., None], Callable[..., None]]:
    def before(hook: str, functions: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        if functions:
            shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            print(f"metaforge: {plugin} -> {hook}({shown})", file=sys.stderr)

    def after(outcome: Any, hook: str, functions: Sequence[Any], _: Mapping[str, Any]) -> None:
        if functions:
            result = outcome.exception or outcome.get_result()
            print(f"metaforge: {plugin} <- {hook}: {result!r}", file=sys.stderr)

    return before, after


class PluginHost:
    """Every plugin of a process, behind typed calls.

    ``plugins`` has a record of each, failed and blocked ones included. Raises
    ``PluginError`` where a plugin was asked for by name or by file and is not to be had.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        self._loaded: list[tuple[PluginRecord, _Plugin]] = []
        files = [find_file(path) for path in settings.files]
        found = find_installed() + files
        settings.refuse_unknown(found)
        for line in settings.unknown_blocks(found):
            print(f"note: {line}", file=sys.stderr)
        self.plugins = tuple(self._admit(plugin) for plugin in found)
        for record in self.plugins[len(found) - len(files) :]:
            if record.state == "failed":
                raise PluginError(f"--plugin {record.distribution}: {record.reason}")

    def _admit(self, found: Found) -> PluginRecord:
        identity = (found.name, found.distribution, found.version)
        if blocked := self.settings.why_blocked(found):
            return PluginRecord(*identity, "blocked", blocked)
        if unmet := found.unmet():
            return PluginRecord(*identity, "failed", unmet)
        try:
            plugin = _Plugin(found, self.settings.trace)
            self._refuse_twice(plugin)
            commands, problems = _without_verbs(plugin.commands())
            record = PluginRecord(
                *identity,
                "loaded",
                package=found.package,
                components=plugin.components(),
                hooks=plugin.hooks,
                recipe_dirs=plugin.recipe_dirs(),
                commands=commands,
                problems=problems,
            )
        except (Exception, SystemExit) as error:
            return PluginRecord(*identity, "failed", one_line(error))
        self._loaded.append((record, plugin))
        return record

    def _refuse_twice(self, plugin: _Plugin) -> None:
        for record, other in self._loaded:
            if other.object is plugin.object:
                raise PluginError(f"it is the same object as {record}")

    def named(self, name: str) -> PluginRecord:
        """The plugin of a name, or of ``distribution:name``, loaded or not.

        Raises ``PluginError`` where there is none, or more than one.
        """
        found = [p for p in self.plugins if name in (p.name, f"{p.distribution}:{p.name}")]
        if len(found) == 1:
            return found[0]
        if found:
            picks = " or ".join(f"{plugin.distribution}:{plugin.name}" for plugin in found)
            raise PluginError(f"plugin {name!r} is there more than once: say {picks}")
        names = [plugin.name for plugin in self.plugins]
        raise PluginError(f"no plugin has the name {name!r}{did_you_mean(name, names)}")

    def check_options(self) -> None:
        """Import the options of every component now; a plugin with bad ones fails whole.

        For verbs that tell of every plugin: options that a plugin names by a string are
        otherwise imported, and refused, when a recipe first chooses their component.
        """
        self.plugins = tuple(map(_with_good_options, self.plugins))
        self._loaded = [pair for pair in self._loaded if pair[0] in self.plugins]

    def components(self) -> tuple[tuple[Component, PluginRecord], ...]:
        """Every component on offer, with the plugin that offers it."""
        return tuple((item, record) for record, _ in self._loaded for item in record.components)

    def recipe_dirs(self) -> tuple[Path, ...]:
        """Folders of recipes that plugins bring."""
        return tuple(folder for record, _ in self._loaded for folder in record.recipe_dirs)

    def commands(self) -> Mapping[str, list[tuple[PluginRecord, click.Command]]]:
        """Commands that plugins bring; more than one of a name is for the caller to refuse."""
        found: dict[str, list[tuple[PluginRecord, click.Command]]] = {}
        for record, _ in self._loaded:
            for name, command in record.commands.items():
                found.setdefault(name, []).append((record, command))
        return found

    def problems(self, recipe: Recipe) -> list[Problem]:
        """What the plugins' ``metaforge_check_recipe`` find wrong with a whole recipe."""
        found: list[Problem] = []
        for name, call in self.hearers("metaforge_check_recipe"):
            found += _listed(name, call(recipe=recipe), "Problems", _is_problem)
        return found

    def report_sections(self, results: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Further sections of the report, (heading, text); one that fails is told in its place."""
        sections: list[tuple[str, str]] = []
        for name, call in self.hearers("metaforge_report_sections"):
            try:
                sections += _listed(name, call(results=results), "(heading, text)", _is_section)
            except PluginError as error:
                sections.append((f"A section of {name} is missing", str(error)))
        return sections

    def hearers(self, hook: str) -> Iterator[tuple[str, Callable[..., list[Any]]]]:
        """Each plugin that implements a hook, in words, and its call, which raises
        ``PluginError`` for whatever the plugin raises."""
        for record, plugin in self._loaded:
            if hook in record.hooks:
                yield str(record), partial(_call, record, plugin, hook)


def _is_problem(item: Any) -> bool:
    return isinstance(item, Problem)


def _is_section(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(isinstance(x, str) for x in item)


def _listed(
    plugin: str, answers: list[Any], expected: str, good: Callable[[Any], bool]
) -> list[Any]:
    """The items of the lists that a plugin's functions answered; ``PluginError`` for others."""
    for answer in answers:
        if not isinstance(answer, list | tuple) or not all(map(good, answer)):
            raise PluginError(f"{plugin}: its hook returned {answer!r}, not a list of {expected}")
    return [item for answer in answers for item in answer]


def _with_good_options(record: PluginRecord) -> PluginRecord:
    """The same record, or a failed one if the options of a component are bad."""
    try:
        for component in record.components:
            _ = component.options_model
    except PluginError as error:
        return PluginRecord(record.name, record.distribution, record.version, "failed", str(error))
    return record


def _call(record: PluginRecord, plugin: _Plugin, hook: str, /, **arguments: Any) -> list[Any]:
    try:
        # what a plugin changes of what it is told is its own
        return plugin.call(hook, **{k: _copied(value) for k, value in arguments.items()})
    except (Exception, SystemExit) as error:
        call = f"{hook}({_brief(arguments)})"
        raise PluginError(f"{record}: {call} failed: {one_line(error)}") from error


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, Mapping) else value


def _brief(arguments: Mapping[str, Any]) -> str:
    """A call's arguments as far as they tell where a run was: the step, the task."""
    told = {name: value for name, value in arguments.items() if isinstance(value, int | str)}
    for value in arguments.values():
        if isinstance(value, Mapping) and "task_id" in value:
            told["task_id"] = value["task_id"]
    return ", ".join(f"{name}={value}" for name, value in told.items())


_host: tuple[Settings, PluginHost] | None = None


def host() -> PluginHost:
    """The process's plugin host, loaded at the first call after a change of settings."""
    global _host
    settings = current_settings()
    if _host is None or _host[0] is not settings:
        _host = settings, PluginHost(settings)
    return _host[1]
