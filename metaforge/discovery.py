"""Where plugins come from, and which of them take part. None is imported here.

These take part:

* every one that an installed distribution lists under the entry-point group
  ``metaforge``, and every file given with ``--plugin file.py``;
* less those that ``-p no:NAME`` or ``METAFORGE_DISABLE_PLUGINS`` (names, comma-separated;
  the word ``third-party`` stands for all but the built-in ones) block;
* if ``METAFORGE_PLUGINS`` (names, comma-separated; ``built-in`` stands for all the built-in
  ones) is set, only these and the files.

NAME is a plugin's name or ``distribution:name``. A blocked plugin is never imported; to block
a name that no plugin has is noted on stderr.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from metaforge.errors import PluginError
from metaforge.suggest import did_you_mean

#: Both the entry-point group of plugins and the distribution of the built-in ones.
GROUP = ENGINE = "metaforge"
#: The word that blocks every plugin but the built-in ones.
THIRD_PARTY = "third-party"
#: The word that stands for all of these in METAFORGE_PLUGINS.
BUILT_IN = "built-in"


class Found(NamedTuple):
    """A plugin not yet loaded. ``unmet()`` words a requirement that is not met, or is empty."""

    name: str
    distribution: str
    version: str
    package: str
    load: Callable[[], Any]
    unmet: Callable[[], str] = lambda: ""
    is_file: bool = False

    @property
    def id(self) -> str:
        """``distribution:name``, unique in a process."""
        return f"{self.distribution}:{self.name}"

    @property
    def third_party(self) -> bool:
        return self.distribution != ENGINE


class Settings(NamedTuple):
    """Which plugins take part; see the module's docstring."""

    only: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    trace: bool = False

    @classmethod
    def from_environment(cls, blocked: Iterable[str] = (), files: Iterable[Path] = ()) -> Settings:
        """The environment's settings, with those of the command line."""

        def names(variable: str) -> tuple[str, ...]:
            given = os.environ.get(variable, "").split(",")
            return tuple(name.strip() for name in given if name.strip())

        return cls(
            only=names("METAFORGE_PLUGINS"),
            disabled=names("METAFORGE_DISABLE_PLUGINS"),
            blocked=tuple(blocked),
            files=tuple(files),
            trace=os.environ.get("METAFORGE_TRACE", "") not in ("", "0"),
        )

    def why_blocked(self, found: Found) -> str:
        """What blocks a plugin, in words, or nothing."""
        names = {found.name, found.id}
        if names & set(self.blocked):
            return f"blocked by -p no:{found.name}"
        disabled = names | ({THIRD_PARTY} if found.third_party else set())
        if disabled & set(self.disabled):
            return "blocked by METAFORGE_DISABLE_PLUGINS"
        chosen = names | (set() if found.third_party else {BUILT_IN})
        if self.only and not found.is_file and not chosen & set(self.only):
            return "not among METAFORGE_PLUGINS"
        return ""

    def refuse_unknown(self, found: Sequence[Found]) -> None:
        """A plugin asked for by a name that none has."""
        known = _names(found)
        for name in self.only:
            if name not in known and name != BUILT_IN:
                raise PluginError(_no_such("METAFORGE_PLUGINS: ", name, known))

    def unknown_blocks(self, found: Sequence[Found]) -> list[str]:
        """A line for each name that blocks nothing. That may be meant, of a plugin which is
        not installed everywhere, so it is no error."""
        known = _names(found)
        disabled = [name for name in self.disabled if name != THIRD_PARTY]
        given = {"-p no:": self.blocked, "METAFORGE_DISABLE_PLUGINS: ": disabled}
        return [
            _no_such(source, name, known)
            for source, names in given.items()
            for name in names
            if name not in known
        ]


def _names(found: Sequence[Found]) -> list[str]:
    """What the plugins may be called by."""
    return [name for plugin in found for name in (plugin.name, plugin.id)]


def _no_such(source: str, name: str, known: Sequence[str]) -> str:
    return f"{source}{name}: no plugin has this name{did_you_mean(name, known)}"


def find_installed() -> list[Found]:
    """Every plugin of every distribution on ``sys.path``: the built-in ones first, then by name.

    A loop of our own: one distribution with unreadable metadata must not hide the others.
    """
    seen: dict[str, list[Found]] = {}
    for distribution in metadata.distributions():
        if f"[{GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
            continue
        name = distribution.name
        if name.lower() not in seen:  # the first on the path counts
            seen[name.lower()] = list(_plugins_of(distribution, name, distribution.version))
    found = [plugin for plugins in seen.values() for plugin in plugins]
    return sorted(found, key=lambda plugin: (plugin.third_party, plugin.id))


def _plugins_of(distribution: metadata.Distribution, name: str, version: str) -> Iterator[Found]:
    """The plugins of a distribution. Its name and version are given: it parses all its
    metadata each time that it is asked for them."""
    try:
        entry_points = distribution.entry_points.select(group=GROUP)
    except Exception as error:
        reason = f"its entry_points.txt cannot be read ({error})"
        yield Found("?", name, version, "", object, unmet=lambda: reason)
        return
    for entry_point in entry_points:
        yield Found(
            name=entry_point.name,
            distribution=name,
            version=version,
            package=entry_point.value.partition(":")[0].partition(".")[0].strip(),
            load=entry_point.load,
            # The engine's own requirements are the installer's business: a part of them may
            # be missing and the rest still work (``metaforge doctor`` lists them).
            unmet=lambda: "" if name == ENGINE else next(unmet_requirements(distribution), ""),
        )


def unmet_requirements(distribution: metadata.Distribution) -> Iterator[str]:
    """All requirements, extras left out, that are missing or have another version."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in distribution.requires or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            yield f"its metadata has an unreadable requirement, {line!r}"
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        installed = _installed_version(requirement.name)
        if installed is None:
            yield f"requires {wanted}, which is not installed"
        elif not requirement.specifier.contains(installed, prereleases=True):
            yield f"requires {wanted}, but {installed} is installed"


def _installed_version(name: str) -> str | None:
    if name.lower() == ENGINE:  # also from a source tree that is not installed
        from metaforge import __version__

        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_file(path: Path) -> Found:
    """A plugin in a file of its own; its module is importable under the file's stem."""
    path = path.expanduser().absolute()
    if fault := _fault_of_file(path):
        raise PluginError(f"--plugin {path}: {fault}")
    return Found(path.stem, path.name, "", path.stem, load=lambda: _load_file(path), is_file=True)


def _fault_of_file(path: Path) -> str:
    """Why a path cannot be a plugin's file, or nothing."""
    if not path.exists():
        return "no such file (an installed plugin needs no --plugin: 'metaforge plugins' lists it)"
    if not path.is_file():
        return "found a folder, expected a Python file such as my_kernel.py"
    if path.suffix != ".py" or not path.stem.isidentifier():
        return (
            f"{path.name!r} is no name of a Python module, which is letters, digits and _ before "
            ".py: rename it, such as my_kernel.py"
        )
    return ""


def _load_file(path: Path) -> ModuleType:
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    existing = importlib.util.find_spec(name)
    if existing is not None and existing.origin != str(path):
        raise ImportError(f"the file has the name of another module, {name!r}: rename it")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # targets say "my_kernel:Class"
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@cache
def source_hash(package: str) -> str:
    """16 hex digits over every file of a top-level package, shipped data included.

    Part of every cache key that the package's code went into; compiled files are left
    out. Nothing is imported. Cached, since a process keeps the code that it loaded.
    Raises ``PluginError`` where there is no such package.
    """
    import hashlib

    spec = importlib.util.find_spec(package)
    if spec is None:
        raise PluginError(f"there is no module {package!r}")
    digest = hashlib.blake2b(digest_size=8)
    if spec.submodule_search_locations is None:
        digest.update(Path(spec.origin or "").read_bytes())
        return digest.hexdigest()
    for folder in map(Path, spec.submodule_search_locations):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()


_settings: Settings | None = None


def configure(settings: Settings | None) -> None:
    """Set which plugins take part in this process; None reads the environment again."""
    global _settings
    _settings = settings


def current_settings() -> Settings:
    """What ``configure`` set, or else the environment's."""
    global _settings
    if _settings is None:
        _settings = Settings.from_environment()
    return _settings
