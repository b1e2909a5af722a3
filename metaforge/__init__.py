"""metaforge: conditional meta-learning, from any inner algorithm, task weighting and kernel.

Importing this package imports neither torch nor a plugin's code.
"""

from __future__ import annotations

from typing import Any

from metaforge.hookspecs import hookimpl

__version__ = "0.1.0"
__all__ = ["TaskBatch", "__version__", "create", "hookimpl", "run"]


def create(kind: str, name: str, *, context: Any = None, **options: Any) -> Any:
    """A ready component: ``create("task_kernel", "gaussian", gamma=50.0)``.

    ``kind`` is one of ``metaforge.components.KINDS``; ``options`` are validated by the
    component's own model. A nested component may be given ready-made
    (``create("inner_algorithm", "maml", model=my_module)``).

    Raises ``PluginError`` for an unknown name, ``RecipeError`` for bad options.
    """
    from metaforge.registry import create as create_component

    return create_component(kind, name, context=context, **options)


def run(recipe: Any, *overrides: str) -> Any:
    """Run a recipe (a path or a mapping) with ``key=value`` overrides; its results as a dict."""
    from metaforge.pipeline import run as run_pipeline
    from metaforge.recipe import load

    return run_pipeline(load(recipe, overrides))


def __getattr__(name: str) -> Any:
    if name == "TaskBatch":
        from metaforge.tasks import TaskBatch

        return TaskBatch
    raise AttributeError(f"module 'metaforge' has no attribute {name!r}")
