"""What limits the gain of a conditional run: the kernel, the bank, the steps, or nothing.

``findings`` measures, from the targets' records; ``limits`` judges what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaforge.recipe.schema import Recipe
from metaforge.verdict.findings import Records, find
from metaforge.verdict.limits import judge


def verdict(
    recipe: Recipe, records: Records, regression: bool, fits: Mapping[str, Any]
) -> dict[str, Any] | None:
    """``verdict`` of ``results.json``; None where nothing is conditioned (J = 0).

    ``fits``: what the kernel's fit recorded, for the similarity of bank tasks.
    """
    if not recipe.condition.steps:
        return None
    found = find(recipe, records, regression, fits)
    return {**found.as_json(), **judge(found)._asdict()}
