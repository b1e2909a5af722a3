"""The one place that imports learn2learn (Arnold et al. 2020, arXiv:2008.12284)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.optional import LEARN2LEARN
from metaforge.options import Options

_PARTS = ("utils", "algorithms", "optim", "nn")


def missing(options: Options, context: Context) -> list[str]:
    """What the component lacks on this machine."""
    return [LEARN2LEARN.missing] if LEARN2LEARN.missing else []


def load() -> Any:
    """The package learn2learn, its ``algorithms``, ``optim`` and ``nn`` imported.

    The whole package needs gym, torchvision, requests and more, which these do not use;
    where those are missing, these are imported alone.

    Raises ``PluginError`` with the command that installs learn2learn, if it is missing.
    """
    spec = find_spec("learn2learn")
    if spec is None or spec.submodule_search_locations is None:
        raise PluginError(f"learn2learn: {LEARN2LEARN.missing}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sources hold invalid escapes
        try:
            import_module("learn2learn")
        except ImportError:
            _forget()
            _add_bare_package(spec, spec.submodule_search_locations)
        try:
            for part in _PARTS:
                import_module(f"learn2learn.{part}")
        except ImportError as error:
            _forget()
            raise PluginError(
                f"learn2learn: its algorithms cannot be imported ({error}); install it anew "
                f"with\n  {LEARN2LEARN.command}"
            ) from error
    package = sys.modules["learn2learn"]
    # as the whole package does, and as its own modules expect
    vars(package).setdefault("clone_module", package.utils.clone_module)
    return package


def _add_bare_package(spec: ModuleSpec, locations: Sequence[str]) -> None:
    """A package that has run none of its ``__init__``, whose parts can be imported."""
    bare = ModuleType("learn2learn")
    bare.__path__ = list(locations)
    bare.__spec__ = spec
    sys.modules["learn2learn"] = bare


def _forget() -> None:
    """Drop what a failed import left behind."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        del sys.modules[name]
