"""What is to be compared, as a caller gives it: checked, and brought into one form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from numbers import Integral
from pathlib import Path
from typing import Any

from metaforge.errors import RecipeError


def is_grid(over: Any, seeds: Any) -> bool:
    """Whether anything is to vary; nothing and an empty list are the same."""
    return any(
        value is not None and (not hasattr(value, "__len__") or len(value) > 0)
        for value in (over, seeds)
    )


def path(value: Any, what: str) -> Path:
    """``RecipeError`` for what names no file; ``what`` is expected."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise RecipeError(f"compare: expected {what}, found {_shown(value)}")
    return Path(text)


def over_values(over: Any) -> dict[str, list[Any]]:
    """Dotted keys and the values that each is to have."""
    if over is None:
        return {}
    if not isinstance(over, Mapping) or not all(isinstance(key, str) for key in over):
        raise RecipeError(
            "compare: over maps dotted keys to lists of values, such as "
            f"{{'weighting.use': ['tasml', 'uniform']}}; found {_shown(over)}"
        )
    return {key: _list(values, f"over: {key}", "[10, 50]") for key, values in over.items()}


def seed_list(seeds: Any) -> tuple[int, ...]:
    """Each seed once."""
    found = [] if seeds is None else list(_items(seeds, "seeds", "[0, 1]"))
    for seed in found:
        if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
            raise RecipeError(f"compare: seeds are whole numbers from 0 on, found {_shown(seed)}")
    return tuple(dict.fromkeys(map(int, found)))


def _list(values: Any, what: str, example: str) -> list[Any]:
    found = list(_items(values, what, example))
    if not found:
        raise RecipeError(f"compare: {what}: no value is given, expected some, as in {example}")
    return found


def _items(values: Any, what: str, example: str) -> Iterable[Any]:
    """A set has no order that two runs of a program share, and a word is no list of letters."""
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise RecipeError(
            f"compare: {what}: expected a list such as {example}, found {_shown(values)}"
        )
    return values


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else f'{text[:57]}...'} ({type(value).__name__})"
