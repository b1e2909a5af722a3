"""Class labels of any kind, numbered 0..C-1. numpy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metaforge.errors import DataError


@dataclass(frozen=True, eq=False)
class Classes:
    """The distinct labels [C], in order, and the number of the class [n] of each row."""

    labels: np.ndarray
    of_row: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def members(self) -> list[np.ndarray]:
        """The rows of each class, in order."""
        order = np.argsort(self.of_row, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.of_row))[:-1])

    def of_classes(self, option: str, values: np.ndarray) -> np.ndarray:
        """[C] of values [n] that the rows of a class have in common. Raises ``DataError`` with the
        classes whose rows differ."""
        found = np.empty(len(self), values.dtype)
        found[self.of_row] = values
        mixed = np.unique(self.of_row[found[self.of_row] != values])
        if len(mixed):
            raise DataError(
                f"{option} differs between rows of one class, of {len(mixed)} classes, first "
                f"{str(self.labels[mixed[0]])!r}; give all rows of a class the same"
            )
        return found

    def per_class(self, option: str, values: np.ndarray) -> np.ndarray:
        """[C] of an array with an entry for each class, in the labels' order or indexed by label;
        or for each row, alike within a class."""
        if values.ndim != 1:
            raise DataError(
                f"{option} has shape {list(values.shape)}; expected [C], one for each class, or [n]"
            )
        if len(values) == len(self):
            return values
        if len(values) == len(self.of_row):
            return self.of_classes(option, values)
        whole = self.labels.dtype.kind in "iu"
        if whole and self.labels[0] >= 0 and self.labels[-1] < len(values):
            return values[self.labels]
        raise DataError(
            f"{option} has {len(values)} entries, but y has {len(self)} classes; give "
            "one for each class, in the order of the labels"
        )


def read_classes(y: np.ndarray, name: str = "y") -> Classes:
    """Number the labels [n]: whole numbers, floats or strings. ``name`` is what messages call them.

    Raises ``DataError`` for what is not one class label a row: more than one column, a
    label that is not finite, or real numbers that hardly repeat (a regression target).
    """
    if y.ndim != 1 or not len(y):
        raise DataError(
            f"{name} has shape {list(y.shape)}; expected class labels [n] (of one-hot rows "
            "give the argmax; regression targets are not supported)"
        )
    if y.dtype.kind == "S":
        y = y.astype(str)
    if y.dtype.kind not in "biufU":
        raise DataError(f"{name} has dtype {y.dtype}; expected numbers or strings (dtype U)")
    if y.dtype.kind == "f":
        y = _finite(y)
    labels, of_row = np.unique(y, return_inverse=True)
    if y.dtype.kind == "f" and len(labels) > len(y) / 2:
        raise DataError(
            f"{name} holds {len(labels)} distinct real numbers in {len(y)} rows, which looks "
            "like a regression target; expected class labels (tasks of regression need a "
            "dataset plugin: docs/plugins.md)"
        )
    return Classes(labels, of_row)


def _finite(y: np.ndarray) -> np.ndarray:
    """Float labels, as whole numbers where they all are."""
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise DataError(
            f"{len(bad)} labels are NaN or infinite, first rows {first_few(bad)}; give "
            "every row a class, or leave it out"
        )
    return y.astype(np.int64) if (y == np.rint(y)).all() else y


def first_few(numbers: np.ndarray) -> str:
    """``"3, 8, 9, ..."``: at most five."""
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
