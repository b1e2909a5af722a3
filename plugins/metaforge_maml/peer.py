"""The one place that imports learn2learn (Arnold et al. 2020, arXiv:2008.12284)."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from metaforge.errors import PluginError

INSTALL = 'pip install --no-deps "learn2learn==0.2.0" --config-settings="--build-option=build_ext"'
MISSING = (
    "backend: learn2learn: the package learn2learn is not installed; install it with\n"
    f"  {INSTALL}\n  or use backend: auto, which does without"
)


def location() -> ModuleSpec | None:
    """Where learn2learn is installed, without importing it; None where it is not."""
    if "learn2learn" in sys.modules:
        return getattr(sys.modules["learn2learn"], "__spec__", None)
    return find_spec("learn2learn")


def algorithms() -> Any:
    """learn2learn's ``algorithms`` module.

    The whole package needs gym, torchvision, requests and more, which its algorithms do
    not use; where those are missing, the algorithms are imported alone.

    Raises ``PluginError`` with the command that installs learn2learn, if it is missing.
    """
    spec = location()
    if spec is None or spec.submodule_search_locations is None:
        raise PluginError(MISSING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sources hold invalid escapes
        try:
            import_module("learn2learn")
        except ImportError:
            _forget()
            bare = ModuleType("learn2learn")
            bare.__path__ = list(spec.submodule_search_locations)
            bare.__spec__ = spec
            sys.modules["learn2learn"] = bare
        try:
            return import_module("learn2learn.algorithms")
        except ImportError as error:
            _forget()
            raise PluginError(
                f"backend: learn2learn: its algorithms cannot be imported ({error}); "
                f"install it anew with\n  {INSTALL}"
            ) from error


def _forget() -> None:
    """Drop what a failed import left behind."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        del sys.modules[name]
