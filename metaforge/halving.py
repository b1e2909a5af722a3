"""Successive halving: which combinations are tried on how many targets. Torch-free.

Jamieson and Talwalkar (2016), *Non-stochastic Best Arm Identification and Hyperparameter
Optimization*: all combinations are tried on a few targets, the best 1 / eta of them go on to
more, and so on; the last ones are tried on all. The targets of a rung are those of the rung
before and further ones, the same for every combination, so that comparisons are paired.

Symbols: n combinations, T targets, eta what a rung divides the combinations by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Fewer targets tell combinations apart hardly better than chance.
FEWEST_TARGETS = 8


class Rung(NamedTuple):
    """How many combinations are tried, on the first how many targets."""

    combinations: int
    targets: int


def rungs(combinations: int, targets: int, eta: int) -> list[Rung]:
    """The rungs for n combinations, the last on all T targets.

    A rung takes ``ceil(n / eta)`` of the one before. Targets grow geometrically, nearly by eta,
    from ``FEWEST_TARGETS`` in a full ladder; where n or T is too small for one, its first rungs
    are left out. The last rung has two combinations at least, unless n is 1. So
    ``rungs(144, 50, 3)`` is 144 on 8, 48 on 20, 16 on 50, and ``rungs(5, 50, 3)`` 5 on 50.
    """
    ladder = _ladder(targets, eta)
    counts = [combinations]
    while len(counts) < len(ladder) and counts[-1] >= 2 * eta:
        counts.append(-(-counts[-1] // eta))
    return [Rung(*pair) for pair in zip(counts, ladder[-len(counts) :], strict=True)]


def _ladder(targets: int, eta: int) -> list[int]:
    """Targets of a full ladder's rungs: from ``FEWEST_TARGETS`` to T in equal ratios."""
    ratio, steps = targets / FEWEST_TARGETS, 0
    while ratio >= eta ** (steps + 0.5):  # the number of steps whose ratio is nearest to eta
        steps += 1
    return [
        *(round(FEWEST_TARGETS * ratio ** (step / steps)) for step in range(steps)),
        targets,
    ]


def conditionings(ladder: Sequence[Rung]) -> int:
    """What the rungs cost: a combination's targets of earlier rungs are not conditioned again."""
    before = [0, *(rung.targets for rung in ladder)]
    return sum(
        rung.combinations * (rung.targets - done)
        for rung, done in zip(ladder, before, strict=False)
    )


def affordable(combinations: int, targets: int, eta: int, budget: int | None) -> int:
    """The most of n combinations whose rungs cost no more than ``budget`` conditionings."""
    if budget is None:
        return combinations
    most = min(combinations, budget // _ladder(targets, eta)[0])
    fitting = (n for n in range(most, 0, -1) if conditionings(rungs(n, targets, eta)) <= budget)
    return next(fitting, 0)
