"""Recipes: what a run does, as YAML, and how it is read and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe, load

__all__ = ["ResolvedRecipe", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Late, so that the schema alone can be imported by what the loader builds on.
        from metaforge.recipe import loader

        return getattr(loader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
