"""Which split each class belongs to. numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaforge.class_labels import Classes, first_few
from metaforge.class_options import ClassOptions
from metaforge.errors import DataError
from metaforge.seeding import bits, derive
from metaforge.split_names import MEANINGS, SPLITS

_NONE = -1


def split_of_class(
    options: ClassOptions,
    classes: Classes,
    groups: np.ndarray | None = None,
    given: np.ndarray | None = None,
) -> np.ndarray:
    """[C]: the position of each class's split in ``SPLITS``, or -1 for none.

    ``groups`` [C] are what shares divide under ``split_by: group``; ``given`` [n] or [C] says the
    split of each row or class, where ``options`` has no shares. Raises ``DataError`` for values
    without meaning, a class in two splits, or a split without a class.
    """
    units = np.arange(len(classes))
    if options.split_by == "group" and groups is not None:
        units = groups
    if options.shares is not None:
        split = divide(units, options.shares, options.split_seed)
    else:
        assert given is not None
        split = _given(options.split_values, given, classes)
    if options.val_share:
        if (split == SPLITS.index("val")).any():
            raise DataError("val_share is for a split without val, but this one has it")
        train = np.flatnonzero(split == SPLITS.index("train"))
        kept = 1 - options.val_share
        split[train] = divide(units[train], (kept, options.val_share, 0.0), options.split_seed)
    for number, name in enumerate(SPLITS):
        if not (split == number).any():
            advice = "; val_share takes some of train's" if name == "val" else ""
            raise DataError(
                f"no class is in split {name!r}; each of {', '.join(SPLITS)} needs some{advice}"
            )
    return split


def divide(units: np.ndarray, shares: Sequence[float], seed: int) -> np.ndarray:
    """The split [C] of each class: the distinct units, in a seeded order, cut by the shares."""
    values, of_class = np.unique(units, return_inverse=True)
    order = bits(derive(seed, "arrays", "split"), values).argsort()
    cuts = np.rint(np.cumsum(shares)[:-1] * len(values))
    split = np.empty(len(values), dtype=np.int64)
    split[order] = np.searchsorted(cuts, np.arange(len(values)), side="right")
    return split[of_class]


def _given(
    split_values: Mapping[Any, Any] | None, given: np.ndarray, classes: Classes
) -> np.ndarray:
    """The split [C] that an array with an entry for each class or each row says."""
    numbers = _numbers(split_values, given)
    if len(numbers) != len(classes.of_row):
        return classes.per_class("split", numbers)
    split = np.full(len(classes), _NONE)
    split[classes.of_row] = numbers
    mixed = np.unique(classes.of_row[split[classes.of_row] != numbers])
    if len(mixed):
        raise DataError(
            f"split puts rows of one class in several splits ({len(mixed)} classes, "
            f"first {str(classes.labels[mixed[0]])!r}); a class belongs to one split: mend it, or "
            "give three shares of the classes"
        )
    return split


def _numbers(split_values: Mapping[Any, Any] | None, given: np.ndarray) -> np.ndarray:
    """Positions in ``SPLITS`` of a split array's own values; -1 for values not listed."""
    values, inverse = np.unique(given, return_inverse=True)
    words = [_word(value) for value in values]
    shown = first_few(np.array(words))
    if split_values is None:
        meanings = MEANINGS
        if not set(words) <= set(meanings):
            raise DataError(
                f"split holds {shown}; expected 0, 1, 2 or train, val, test: say what "
                "its values mean in split_values, e.g. {train: background, test: evaluation}"
            )
    else:
        meanings = _listed(split_values)
        if absent := sorted(set(meanings) - set(words)):
            raise DataError(f"split_values names {', '.join(absent)}, but split holds {shown}")
    return np.array([meanings.get(word, _NONE) for word in words])[inverse]


def _listed(split_values: Mapping[Any, Any]) -> dict[str, int]:
    """The split's position for each value that ``split_values`` lists."""
    return {
        _word(value): SPLITS.index(name)
        for name, values in split_values.items()
        for value in (values if isinstance(values, list | tuple) else [values])
    }


def _word(value: Any) -> str:
    """A split's value as text: 1, 1.0, "1" and b"1" are one."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
