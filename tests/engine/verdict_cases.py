"""Records of targets made to order: each arm's gain over J = 0, and what was recalled."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaforge.recipe import load
from metaforge.verdict import verdict
from tests.small import SMALL

STEPS = [0, 1, 3, 6]
#: SP's gain at the recorded steps, as shares of its gain at J: no trend at the end.
LEVEL = (0.0, 0.7, 1.0, 1.0)


def records(
    gains: dict[str, float],
    *,
    n: int = 100,
    noise: float = 0.01,
    shape: tuple[float, ...] = LEVEL,
    own: float | None = 0.5,
    weight: float | None = None,
    absent: int = 0,
    ranks: bool = True,
    errors: bool = False,
) -> list[dict[str, Any]]:
    """n targets.

    gains   mean improvement of each arm over J = 0 after J steps
    noise   standard deviation of the targets around it
    own     share of the own group among what is recalled, None without groups; a fifth of the
            bank is of it
    weight  the same by weight, where it is another
    absent  targets whose group the bank lacks
    """
    found, rng = [], np.random.default_rng(0)
    scatter = {arm: rng.normal(size=(n, len(shape))) for arm in gains}
    for i in range(n):
        level, sign = float(rng.uniform(0.4, 0.6)), -1 if errors else 1
        curves = {}
        for arm, gain in gains.items():
            if arm == "oracle" and i < absent:
                continue
            centred = scatter[arm][i] - scatter[arm].mean(0)
            points = gain * np.array(shape) + noise * centred
            curves[arm] = [level, *(level + sign * points[1:]).tolist()]
        record = {"target": i, "unconditional": level, "steps": STEPS, "curves": curves}
        if ranks:
            in_bank = i >= absent
            record["weights"] = {
                "alpha_negative": 0.4,
                "effective_sample_size": 6.0 + rng.uniform(),
                "own_group": None if own is None else own * in_bank,
                "own_group_weight": None if own is None else (weight or own) * in_bank,
                "own_group_bank": None if own is None else 0.2 * in_bank,
            }
        found.append(record)
    return found


def judged(
    gains: dict[str, float], *overrides: str, errors: bool = False, **options: Any
) -> dict[str, Any]:
    """The verdict over such records; the recipe's controls are the arms."""
    controls = [arm for arm in gains if arm not in ("conditional", "sp_without_target")]
    recipe = load({**SMALL, "evaluate": {"controls": controls}}, overrides).recipe
    fits = {"kernel": {"similarity": 0.4}}
    found = verdict(recipe, records(gains, errors=errors, **options), errors, fits)
    assert found is not None
    return found
