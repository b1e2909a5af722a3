"""What is no problem of a recipe, and yet not what its reader may expect. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from metaforge.recipe.presets import remark as preset_remark
from metaforge.recipe.trials import Trials

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe


class Weighting(Protocol):
    """A created weighting, or its ``Component``, which may not know (None)."""

    @property
    def target_specific(self) -> bool | None: ...
    @property
    def learned(self) -> bool | None: ...


def remarks(resolved: ResolvedRecipe, weighting: Weighting | None = None) -> list[str]:
    """Remarks of ``validate`` and notes of a run, which knows the created ``weighting``."""
    if weighting is None:
        chosen = next(choice for choice in resolved.chosen if choice.path == ("weighting",))
        weighting = chosen.component
    return [
        *preset_remark(resolved),
        *_top_m(resolved, weighting),
        *_controls(resolved, weighting),
        *_selection(resolved),
    ]


def _top_m(resolved: ResolvedRecipe, weighting: Weighting) -> Iterator[str]:
    recipe = resolved.recipe
    size, use = recipe.bank.size, recipe.weighting.use
    tried = recipe.select.grid.get("condition.top_m", ()) if recipe.select else ()
    greatest = max(tried or [recipe.condition.top_m])
    if weighting.target_specific is False:
        yield (
            f"{use} does not rank tasks: top_m is ignored and every step draws "
            f"from the whole bank (M = N = {size})"
        )
    elif greatest > size:
        yield (
            f"condition.top_m: {greatest} is more than bank.size: {size}: all of the bank's "
            "tasks are kept"
        )


def _controls(resolved: ResolvedRecipe, weighting: Weighting) -> Iterator[str]:
    """Controls that a run leaves out, or that are the run itself."""
    recipe = resolved.recipe
    use, controls = recipe.weighting.use, recipe.evaluate.controls
    if weighting.target_specific is False and "topm_equal" in controls:
        yield f"control topm_equal is left out: {use} does not rank tasks, so there is no top M"
    unranked = weighting.target_specific is False and weighting.learned is False
    if unranked and "uniform_bank" in controls:
        yield (
            f"control uniform_bank is SP itself under {use}, which weighs every bank task alike: "
            "their difference is 0, and its interval undefined"
        )
    if recipe.evaluate.without_target_term and recipe.condition.beta2 == 0:
        yield "evaluate.without_target_term changes nothing: condition.beta2 is 0 already"


def _selection(resolved: ResolvedRecipe) -> Iterator[str]:
    """A budget that the whole grid does not fit in."""
    if resolved.recipe.select is None:
        return
    trials = Trials(resolved.recipe)
    if trials.count < trials.in_grid:
        yield (
            f"select.budget: {resolved.recipe.select.budget} conditionings: {trials.count} of the "
            f"grid's {trials.in_grid} combinations are tried, drawn by the seed"
        )
