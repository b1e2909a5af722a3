"""Whether ``"module:attribute"`` can be imported, as far as can be told without importing it."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

#: What gives a module names that its source does not spell out.
_UNSEEN = re.compile(r"import \*|__getattr__|globals\(|setattr\(|exec\(")


def obstacle(target: str) -> str:
    """Why a target cannot be imported, or nothing. No module is executed, neither the
    target's nor its packages', which ``importlib.util.find_spec`` would import."""
    module, _, attribute = target.partition(":")
    loaded = sys.modules.get(module)
    if loaded is not None and (attribute in vars(loaded) or loaded.__spec__ is None):
        return ""
    try:
        spec = _spec(module)
    except KeyError:  # inside a namespace package that is not loaded: only an import can tell
        return ""
    if spec is None:
        return f"there is no module {module!r}"
    if _names_nowhere(spec, attribute):
        return f"{spec.origin} defines no {attribute!r}"
    return ""


def _spec(module: str) -> ModuleSpec | None:
    if module in sys.modules:
        return sys.modules[module].__spec__
    package, _, _ = module.rpartition(".")
    path = None
    if package:
        holder = _spec(package)
        if holder is None or holder.submodule_search_locations is None:
            return None
        path = list(holder.submodule_search_locations)
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return next(filter(None, (finder.find_spec(module, path) for finder in finders)), None)


def _names_nowhere(spec: ModuleSpec, attribute: str) -> bool:
    """Whether a module's source cannot define the attribute: neither the name nor what makes
    names unseen stands in it. A module without readable source may define it."""
    if not (spec.has_location and str(spec.origin).endswith(".py")):
        return False
    source = Path(str(spec.origin)).read_text(encoding="utf-8", errors="replace")
    return attribute not in source and not _UNSEEN.search(source)
