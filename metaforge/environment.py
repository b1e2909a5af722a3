"""What a run ran on: versions, device, threads, plugins and their sources' digests."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from metaforge import __version__, plugins, registry
from metaforge.components import Context
from metaforge.errors import PluginError, RecipeError
from metaforge.optional import COMPUTING, OPTIONAL
from metaforge.options import Choice, holds_names, nested_kinds
from metaforge.recipe.schema import Recipe
from metaforge.records import read_json
from metaforge.run_files import Env

_PACKAGES = (
    *("torch", "numpy", "scipy", "safetensors", "pydantic", "pluggy"),
    *(package.name for package in OPTIONAL),
)


@cache
def engine_digest() -> str:
    """A digest of the engine's own source, for cache keys."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def prepare(threads: int | None) -> None:
    """Make the process ready for long work."""
    gc.enable()  # ``metaforge.cli.process`` starts without
    if threads:
        import torch

        torch.set_num_threads(threads)


def pick_device(name: str) -> str:
    """``auto`` takes CUDA where there is one; a device that is not there is an error."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RecipeError(f"device: {name!r} is not a device; use auto, cpu or cuda") from error
    seen = {"cuda": torch.cuda.device_count, "mps": torch.mps.device_count}
    count = seen[device.type]() if device.type in seen else 1
    if (device.index or 0) >= count:
        found = f"{count} {device.type} devices" if count else f"no {device.type} device"
        raise RecipeError(f"device: {name!r} asked for, but torch sees {found} here; use auto")
    return name


def components(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The recipe's components, nested ones too, with the distribution, version and source
    digest that serve them, by dotted key (``inner``, ``inner.model``)."""
    found: dict[str, dict[str, Any]] = {}
    for section in ("data", "inner", "kernel", "weighting"):
        found |= of_choice(section, nested_kinds(Recipe)[section], getattr(recipe, section))
    return found


def of_choice(path: str, kind: str, chosen: Choice) -> dict[str, dict[str, Any]]:
    """A chosen component and those nested in it, as ``components`` tells them."""
    component = registry.get(kind, chosen.use)
    found: dict[str, dict[str, Any]] = {path: registry.component_identity(component)}
    for name, inner_kind in nested_kinds(component.options_model).items():
        nested = chosen.options.get(name)
        if nested is not None and holds_names(component.options_model, name):
            for label, one in nested.items():
                found |= of_choice(f"{path}.{name}.{label}", inner_kind, Choice.model_validate(one))
        elif nested is not None:
            found |= of_choice(f"{path}.{name}", inner_kind, Choice.model_validate(nested))
    return found


def describe(recipe: Recipe, context: Context, ranks: int = 1) -> dict[str, Any]:
    """What ``env.json`` holds. Each of several ranks has a device of its own: of them, the kind."""
    import torch

    return {
        "metaforge": __version__,
        "engine_digest": engine_digest(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": context.device if ranks == 1 else context.device.partition(":")[0],
        "ranks": ranks,
        "device_name": torch.cuda.get_device_name()
        if context.device.startswith("cuda")
        else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
        "components": components(recipe),
        "plugins": _plugins(),
        "git": _git_commit(),
    }


def _plugins() -> dict[str, dict[str, str]]:
    """Every loaded plugin, by ``distribution:name``: its version and the hash of its files."""
    return {
        f"{plugin.distribution}:{plugin.name}": {
            "version": plugin.version,
            "source": plugin.source_hash,
        }
        for plugin in plugins.host().plugins
        if plugin.state == "loaded"
    }


def refuse_other_code(before: dict[str, Any], now: dict[str, Any], where: Path) -> None:
    """A resumed run must be served by what began it, or its bits would not be one run's."""
    found = [
        f"{key}: {before.get(key)} -> {now[key]}"
        for key in ("metaforge", "engine_digest", "threads", "device")
        if before.get(key) != now[key]
    ]
    found += differences(before["components"], now["components"])
    if before["packages"].get("torch") != now["packages"]["torch"]:
        found.append(f"torch: {before['packages'].get('torch')} -> {now['packages']['torch']}")
    if found:
        raise PluginError(
            f"{where}: cannot be resumed, what serves it has changed since it began:\n  "
            + "\n  ".join(found)
            + f"\nput that back, or start anew: metaforge run {where / 'resolved.yaml'}"
        )


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for all that tells a component now from what served before, by dotted key."""
    return [
        f"{section} {identity['name']}, {key}: {before.get(section, {}).get(key)} -> {value}"
        for section, identity in now.items()
        for key, value in identity.items()
        if before.get(section, {}).get(key) != value
    ]


def missing(run_dir: Path) -> list[str]:
    """A line for each component of a run that is not here now: who had it, and how to give it."""
    path = run_dir / "env.json"
    components = read_json(path, Env)["components"] if path.exists() else {}
    return absent(components, f"run --resume {run_dir}")


def absent(components: dict[str, Any], verb: str) -> list[str]:
    """A line for each of the components, by dotted key, that is not here; ``verb`` is what a
    plugin's file is to be given to."""
    return [
        f"{section} {was['name']} was from {_origin(was, verb)}"
        for section, was in components.items()
        if not _is_here(was)
    ]


def here(components: dict[str, Any]) -> dict[str, Any]:
    """What serves components now, those of them that are here."""
    return {
        section: registry.component_identity(registry.get(was["kind"], was["name"]))
        for section, was in components.items()
        if _is_here(was)
    }


def _is_here(identity: dict[str, str]) -> bool:
    try:
        registry.get(identity["kind"], f"{identity['distribution']}:{identity['name']}")
    except PluginError:
        return False
    return True


def _origin(identity: dict[str, str], verb: str) -> str:
    distribution, version = identity["distribution"], identity["version"]
    if not version:  # a file has none
        return (
            f"the plugin file {distribution}: give it again, "
            f"metaforge --plugin path/to/{distribution} {verb}"
        )
    return (
        f"{distribution} {version}: install it, pip install {distribution}=={version} "
        "('metaforge plugins' says why a plugin is left out)"
    )


def optional_versions() -> dict[str, str | None]:
    """Versions of the packages that single components compute with, for cache keys."""
    return {package.name: _version(package.name) for package in COMPUTING}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the folder the user works in, if it is a git checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
