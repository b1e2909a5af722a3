"""A component's docstring, read from its source: nothing is imported, torch least of all."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path


def docstring_of(target: str) -> str:
    """The docstring of ``"module:attribute"``, or of its module, or nothing."""
    module, _, attribute = target.partition(":")
    path = _source(module)
    if path is None:
        return ""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            return ast.get_docstring(node) or cleandoc(ast.get_docstring(tree) or "")
    return cleandoc(ast.get_docstring(tree) or "")


def _source(module: str) -> Path | None:
    """A module's file. Only the top-level package is looked up: its parts are paths."""
    top, *parts = module.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    if not parts:
        candidates = [Path(spec.origin or "")]
    else:
        folders = map(Path, spec.submodule_search_locations or ())
        bases = [folder.joinpath(*parts) for folder in folders]
        candidates = [base.with_suffix(".py") for base in bases]
        candidates += [base / "__init__.py" for base in bases]
    return next((path for path in candidates if path.is_file() and path.suffix == ".py"), None)
