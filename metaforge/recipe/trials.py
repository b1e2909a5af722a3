"""What selection tries, as the recipe alone tells it: combinations, rungs, cost. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from metaforge import halving
from metaforge.halving import Rung
from metaforge.recipe.overrides import split_key
from metaforge.recipe.render import shown
from metaforge.recipe.schema import Recipe

#: Sections that selection may vary: what comes after meta-training and before the targets.
SELECTABLE = ("kernel", "weighting", "condition")
#: The key whose values cost nothing: J is read off each combination's own curve.
STEPS = "condition.steps"


@dataclass(frozen=True)
class Trials:
    """The selection of a recipe, which has one, and a grid that is valid.

    Combinations vary the kernel slowest, then the weighting, so that neighbours share a fit.
    """

    recipe: Recipe

    @cached_property
    def steps(self) -> list[int]:
        """Every J, ascending; a conditioning goes to the last."""
        return sorted(self._select.grid.get(STEPS, (self.recipe.condition.steps,)))

    @cached_property
    def in_grid(self) -> int:
        """Combinations of the whole grid; values of J make none."""
        return math.prod(map(len, self._axes.values()))

    @cached_property
    def count(self) -> int:
        """Combinations that the budget allows; 0 where not even one."""
        select = self._select
        return halving.affordable(self.in_grid, select.targets, select.eta, select.budget)

    @cached_property
    def combinations(self) -> list[dict[str, Any]]:
        """Those that are tried, in the grid's order; of a grid too large a random part."""
        if self.count == self.in_grid:
            return [self._combination(index) for index in range(self.in_grid)]
        import numpy as np

        from metaforge import seeding

        key = seeding.derive(self.recipe.seed, "select/combinations")
        drawn = np.argsort(seeding.bits(key, np.arange(self.in_grid)), kind="stable")
        return [self._combination(index) for index in sorted(drawn[: self.count].tolist())]

    @cached_property
    def rungs(self) -> list[Rung]:
        return halving.rungs(self.count, self._select.targets, self._select.eta)

    @property
    def conditionings(self) -> int:
        return halving.conditionings(self.rungs)

    def told(self) -> str:
        """What is tried, in a line: the cost first, as narrow terminals cut lines short."""
        values = ", ".join(f"{key} of {shown(list(v))}" for key, v in self._select.grid.items())
        rungs = ", ".join(f"{rung.combinations} on {rung.targets}" for rung in self.rungs)
        return (
            f"{rungs} targets: {self.conditionings} conditionings of {self.steps[-1]} steps; "
            f"combinations of {values}"
        )

    @property
    def _select(self) -> Any:
        assert self.recipe.select is not None
        return self.recipe.select

    @cached_property
    def _axes(self) -> dict[str, tuple[Any, ...]]:
        grid = {key: values for key, values in self._select.grid.items() if key != STEPS}
        return dict(sorted(grid.items(), key=lambda item: SELECTABLE.index(split_key(item[0])[0])))

    def _combination(self, index: int) -> dict[str, Any]:
        """The grid's combination at a place, the last key's values the fastest."""
        chosen = {}
        for key, values in reversed(self._axes.items()):
            index, place = divmod(index, len(values))
            chosen[key] = values[place]
        return dict(reversed(chosen.items()))
