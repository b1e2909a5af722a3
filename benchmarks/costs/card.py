"""A card that is not at hand, estimated: the operators that a step calls and their operations,
counted on the CPU, over published peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.costs.constants import BATCH, TOGETHER, condition
from benchmarks.costs.model import Constants


@dataclass(frozen=True)
class Card:
    """Published peaks, and what is assumed beside them: the share of a peak that is reached, and
    the seconds that the host takes to call an operator."""

    name: str
    float32: float
    float64: float
    bytes: float
    share: float = 0.5
    call: float = 1e-5


A100 = Card("A100, 80 GB", 19.5e12, 19.5e12, 80e9)
#: Of an exchange between eight cards of a machine: bytes a second, seconds.
BANDWIDTH, LATENCY = 1e11, 2e-5


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def counted(card: Card, targets: int = 8) -> Constants:
    """What a card would take, from the calls and operations of steps of several targets at once."""
    calls, operations = _counts(targets)
    tasks = targets * (BATCH + 1)
    rate = card.share * card.float64
    return Constants(
        call=calls * card.call,
        task=operations / tasks / (card.share * card.float32),
        together=TOGETHER,
        # a few calls for a block of 500
        signature=20 * card.call / 500,
        kernel=rate,
        factor=rate,
        basis=rate,
        solve=rate,
        bandwidth=BANDWIDTH,
        latency=LATENCY,
    )


def _counts(targets: int, steps: int = 10) -> tuple[float, float]:
    """Operators called and operations done by a step, the start of targets left out."""
    found = []
    for n in (steps, 2 * steps):
        run = condition(BATCH, targets, n)
        calls, operations = _Calls(), FlopCounterMode(display=False)
        with operations, calls:
            run()
        found.append((calls.count, operations.get_total_flops()))
    (few, less), (many, more) = found
    return (many - few) / steps, (more - less) / steps
