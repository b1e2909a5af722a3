"""The learner of a finished run, from its folder and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metaforge import environment, run_files, stages
from metaforge.components import Context
from metaforge.errors import DataError, MetaforgeError, PluginError
from metaforge.learner.learner import Learner
from metaforge.metatrain import WarmStart
from metaforge.recipe import ResolvedRecipe
from metaforge.recipe import load as load_recipe
from metaforge.records import load_tensors, read_json
from metaforge.rundir import RunDir
from metaforge.stages import Parts


def from_run(path: Path, context: Context, device: str | None = None) -> Learner:
    """The learner of the run in a folder.

    Raises ``DataError`` for a run that has not finished, or whose data have changed since;
    ``PluginError`` where what served it is not here.
    """
    folder = RunDir.open(path)
    results = folder.results
    resolved = resolved_of(folder.path)
    if device is not None:
        resolved = resolved.with_values({"device": device})
    parts, start = parts_of(resolved, folder, context)
    env = read_json(folder.path / "env.json", run_files.Env)
    origin = {
        "run": folder.path.name,
        "recipe": parts.recipe.name,
        "data": parts.recipe.data.use,
        "fingerprint": parts.source.fingerprint,
        "components": env["components"],
        "metaforge": env["metaforge"],
        "torch": env["packages"]["torch"],
    }
    notes = [f"of the run: {line}" for line in results["warnings"]] + environment.differences(
        env["components"], environment.components(parts.recipe)
    )
    return Learner(parts, start, origin, notes)


def resolved_of(path: Path) -> ResolvedRecipe:
    """The recipe of a run's folder, unchecked. ``PluginError`` tells what had a component that
    is not here."""
    RunDir(path).recipe_text()  # refused where it is not what the run was made from
    try:
        return load_recipe(path / "resolved.yaml", check=False)
    except MetaforgeError as error:
        if missing := environment.missing(path):
            raise PluginError("\n".join([str(error), *missing])) from error
        raise


def parts_of(resolved: ResolvedRecipe, folder: RunDir, context: Context) -> tuple[Parts, WarmStart]:
    """The run's parts, with what selection chose in place, and theta_hat."""
    recipe = resolved.recipe
    context = stages.context_for(recipe, context)
    parts = Parts.build(recipe, context)
    before: str = read_json(folder.artifacts / "data.json", run_files.Data)["fingerprint"]
    if before != parts.source.fingerprint:
        raise DataError(
            f"{folder.path}: its data have changed since it was made (fingerprint {before[:12]}, "
            f"now {parts.source.fingerprint[:12]}): restore the data, or take a bundle of it "
            "(metaforge bundle), which needs none"
        )
    tensors, _ = load_tensors(folder.artifacts / "theta_hat.safetensors", run_files.MetaTrained)
    held = {name: value.to(context.device) for name, value in tensors.items()}
    start = WarmStart.of(held, parts.theta)
    parts.theta_hat = start.theta
    if recipe.select is not None:
        chosen: dict[str, Any] = read_json(folder.path / "select.json", run_files.Selected)
        parts = parts.with_recipe(resolved.with_values(chosen["chosen"]).recipe)
    return parts, start
