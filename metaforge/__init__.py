"""metaforge: conditional meta-learning, from any inner algorithm, task weighting and kernel.

Importing this package imports nothing else: every command begins with it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from typing import Any

    from metaforge.hookspecs import hookimpl
    from metaforge.tasks import TaskBatch

__version__ = "0.1.0"
__all__ = [
    "TaskBatch",
    "__version__",
    "compare",
    "create",
    "hookimpl",
    "load",
    "load_model",
    "run",
]


def create(kind: str, name: str, *, context: Any = None, **options: Any) -> Any:
    """A ready component: ``create("task_kernel", "gaussian", gamma=50.0)``.

    ``kind`` is one of ``metaforge.components.KINDS``; ``options`` are validated by the
    component's own model. A nested component may be given ready-made
    (``create("inner_algorithm", "maml", model=my_module)``).

    Raises ``PluginError`` for an unknown name, ``RecipeError`` for bad options.
    """
    from metaforge.registry import create as create_component

    return create_component(kind, name, context=context, **options)


def run(recipe: Any, *changes: Any, data: Any = None, quiet: bool = False) -> Any:
    """Run a recipe, changed; its results as a dict.

    ``recipe`` is a path, the name of a shipped one or a mapping; a change is a text
    (``"condition.steps=50"``) or a mapping (``{"condition.steps": 50}``). ``data`` takes the place
    of the recipe's: a torch ``Dataset`` of (x, y), arrays (X, y), or one of these for each of
    train, val and test, or learn2learn Tasksets for each; it is kept as files in the folder of
    runs, which the run reads. Scores are as measured: accuracies in 0..1, squared errors.
    ``quiet`` prints no progress.
    Raises ``RecipeError`` with every problem of the recipe, and what the run raises.
    """
    from metaforge.recipe import load

    if data is not None:
        from metaforge.own_run import data_changes

        changes = (*changes, data_changes(data, recipe, changes, quiet=quiet))
    resolved = load(recipe, changes)  # before torch is imported, as it may have problems
    from metaforge.pipeline import run as run_pipeline

    return run_pipeline(resolved, quiet=quiet)


def compare(
    first: Any,
    *rest: Any,
    over: Any = None,
    seeds: Any = None,
    out: Any = None,
    force: bool = False,
    quiet: bool = False,
) -> Any:
    """Methods side by side on the same frozen targets; the table as a dict, saved in ``out``.

    ``compare(run, run, ...)`` takes folders of finished runs; ``compare(recipe, "key=value",
    over={"weighting.use": ["tasml", "uniform"]}, seeds=[0, 1])`` makes what is missing of a
    grid. Raises ``DataError`` for unlike runs unless forced, and for unfinished or damaged ones,
    ``RecipeError`` for arguments of another kind.
    """
    from metaforge import comparison
    from metaforge.comparison.given import is_grid

    if is_grid(over, seeds):
        return comparison.compare_grid(
            first, rest, over=over, seeds=seeds, out=out, force=force, quiet=quiet
        )
    return comparison.compare_runs([first, *rest], out=out, force=force)


def load(source: Any, *, device: str | None = None) -> Any:
    """A trained learner, to be moved to tasks of your own: ``load(run).condition(x, y)``.

    ``source`` is the folder of a finished run or of a bundle, or the name of a shipped bundle
    (``"glyphs"``); of the folder of an adapted model, that model (``load_model``). ``device``
    takes the place of the recipe's. Raises ``DataError`` for what is none of these, unfinished,
    damaged or whose data have changed, ``PluginError`` where what served the run is not here.
    """
    from metaforge.learner.load import load as load_learner

    return load_learner(source, device=device)


def load_model(path: Any, *, device: str | None = None) -> Any:
    """An adapted model, from the folder that ``metaforge adapt`` or its ``save`` wrote."""
    from metaforge.adapted import load as load_adapted

    return load_adapted(path, device=device)


def __getattr__(name: str) -> Any:
    if name == "hookimpl":
        from metaforge.hookspecs import hookimpl

        return hookimpl
    if name == "TaskBatch":
        from metaforge.tasks import TaskBatch

        return TaskBatch
    raise AttributeError(f"module 'metaforge' has no attribute {name!r}")
