"""What trackers show of a target and of results: flat, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def of_target(record: Mapping[str, Any]) -> dict[str, float]:
    """Of a target's record: its score before conditioning and at the last step of every arm."""
    found = {"unconditional": record["unconditional"]}
    found |= {arm: curve[-1] for arm, curve in record["curves"].items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def of_results(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """``(unconditional, mean)`` and so on: the arms' means, and ``gain``, SP's over J = 0."""
    for arm in ("unconditional", "conditional"):
        yield arm, results[arm]["mean"]
    yield "gain", results["difference"]["mean"]
    for name, control in results["controls"].items():
        yield name, control["mean"]


def flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """A recipe's settings, by dotted key."""
    for name, value in values.items():
        key = f"{path}{name}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{key}.")
        else:
            yield key, str(value)
