"""What an adapted model says of samples: a table, and how much of it is right."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.adapted import Adapted, probabilities
from metaforge.errors import DataError
from metaforge.samples import Samples, listed
from metaforge.statistics import summary

#: z(0.975), for Wilson's interval.
_Z = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of n samples.

    names    [n]
    values   [n] labels, or [n, d] of regression
    scores   [n, classes] probabilities; None in regression
    labels   [n] those given, or None where no sample has one
    """

    names: tuple[str, ...]
    values: np.ndarray
    scores: np.ndarray | None
    classes: tuple[Any, ...] | None
    labels: np.ndarray | None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each sample: its name, what is predicted, the scores, the label if given."""
        found = []
        for i, name in enumerate(self.names):
            row: dict[str, Any] = {"input": name}
            if self.classes is None or self.scores is None:
                row |= _columns("predicted", self.values[i])
            else:
                row["predicted"] = self.values[i].item()
                pairs = zip(self.classes, self.scores[i].tolist(), strict=True)
                row |= {f"score {name}": score for name, score in pairs}
            if self.labels is not None:
                row |= _columns("label", self.labels[i])
            found.append(row)
        return found

    def csv(self) -> str:
        """The rows as a table, numbers as they are."""
        text = io.StringIO()
        rows = self.rows()
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["input"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def right(self) -> dict[str, Any] | None:
        """Where there are labels, of classes: ``accuracy``, ``n``, ``ci95`` (Wilson 1927), and
        ``unknown``, labels that are no class of the model, whose samples are not counted; of
        regression: ``mse``, ``n``, ``ci95`` (Student's t)."""
        if self.labels is None:
            return None
        if self.classes is None:
            found = summary(_errors(self.values, self.labels))
            return {"mse": found["mean"], "n": found["n"], "ci95": found["ci95"]}
        known = {_name(name) for name in self.classes}
        told = [_name(label) for label in self.labels.tolist()]
        values = map(_name, self.values.tolist())
        pairs = [(a, b) for a, b in zip(told, values, strict=True) if a in known]
        right = sum(a == b for a, b in pairs)
        return {
            "accuracy": right / len(pairs) if pairs else None,
            "n": len(pairs),
            "ci95": wilson(right, len(pairs)) if pairs else None,
            "unknown": sorted({label for label in told if label not in known}),
        }


def is_table(path: Path) -> bool:
    """Whether a file is one that ``Predictions.csv`` gave."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(6) in (b"input,", b"input\n")


def predict(model: Adapted, inputs: Sequence[Samples]) -> Predictions:
    """Of all inputs, each as it was read. Raises ``DataError`` that names samples of all of them
    which cannot be used, and where regression labels are not numbers of the model's shape."""
    outputs, wrong = [], []
    for one in inputs:
        try:
            with one.named():
                outputs.append(model.outputs(one.values))
        except DataError as error:
            wrong.append(str(error))
    if wrong:
        raise DataError("\n".join(wrong))
    every = np.concatenate(outputs)
    labels = None
    if inputs and all(one.labels is not None for one in inputs):
        labels = np.concatenate([np.asarray(one.labels) for one in inputs])
    names = tuple(name for one in inputs for name in one.names)
    if model.classes is None:
        return Predictions(names, every, None, None, labels)
    scores = probabilities(every, model.scale)
    values = np.array(model.classes)[every.argmax(1)]
    return Predictions(names, values, scores, model.classes, labels)


def told(found: dict[str, Any]) -> list[str]:
    """``Predictions.right`` in words."""
    if "mse" in found:
        interval = _interval(found["ci95"], 1.0)
        return [f"mean squared error {found['mse']:.4g}{interval}, n = {found['n']}"]
    lines = []
    if found["n"]:
        interval = _interval(found["ci95"], 100.0)
        lines.append(f"accuracy {100 * found['accuracy']:.1f} %{interval}, n = {found['n']}")
    if found["unknown"]:
        unknown = listed(found["unknown"])
        lines.append(f"labels that are no class of the model, not counted: {unknown}")
    return lines


def _interval(ci: Sequence[float] | None, factor: float) -> str:
    return "" if ci is None else f" (95 %: {factor * ci[0]:.4g} to {factor * ci[1]:.4g})"


def _name(label: Any) -> str:
    """A label in words; whole numbers the same whether they are written as floats or not."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def wilson(right: int, n: int) -> list[float]:
    """The 95 % interval of a share of n (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    share, z2 = right / n, _Z**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return [max(0.0, middle - half), min(1.0, middle + half)]


def _errors(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[n]: mean squared error of each sample."""
    wanted = labels[:, None] if labels.ndim == 1 else labels
    if wanted.dtype.kind not in "iuf" or wanted.shape != values.shape:
        raise DataError(
            f"labels have shape {list(labels.shape)} and dtype {labels.dtype}; the model is of "
            f"regression: expected numbers {list(values.shape)}"
        )
    if len(bad := np.flatnonzero(~np.isfinite(wanted).all(1))):
        raise DataError(f"labels of {len(bad)} samples are NaN or infinite, first {int(bad[0])}")
    return np.square(values - wanted).mean(1)


def _columns(name: str, value: Any) -> dict[str, Any]:
    """One column, or one for each of d values."""
    flat = np.atleast_1d(value)
    if len(flat) == 1:
        return {name: flat[0].item()}
    return {f"{name} {i}": one.item() for i, one in enumerate(flat)}
