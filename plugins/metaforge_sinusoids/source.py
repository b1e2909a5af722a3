"""The task source ``sinusoids``: curves y = f(x) of several families, one a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.sampling import id_array
from metaforge.seeding import derive, uniform
from metaforge.tasks import SPLITS, Ids, TaskBatch, TaskShape, TaskSource, View
from metaforge_sinusoids.options import SinusoidsOptions

#: Inputs are uniform in [-LIMIT, LIMIT].
LIMIT = 5.0
#: Part of the fingerprint: raised whenever the same options would make other tasks.
_DRAWING = 1


@dataclass(frozen=True)
class Curves:
    """A family y = f(x; parameters): each parameter is uniform in its range.

    ``signed`` names the parameter whose sign is drawn too, each sign equally likely.
    """

    function: Callable[..., np.ndarray]
    ranges: dict[str, tuple[float, float]]
    signed: str | None = None


#: Families after Vuorio et al. 2019. The ranges are chosen so that none is flat or dwarfs the
#: others: the standard deviation of y over tasks and inputs is 2.3 (sine) to 4.0 (absolute).
CURVES = {
    "sine": Curves(
        lambda x, a, w, b: a * np.sin(w * x + b),
        {"a": (1.0, 5.0), "w": (0.5, 2.0), "b": (0.0, 2 * np.pi)},
    ),
    "line": Curves(lambda x, a, b: a * x + b, {"a": (-2.0, 2.0), "b": (-3.0, 3.0)}),
    "quadratic": Curves(
        lambda x, a, c, b: a * (x - c) ** 2 + b,
        {"a": (0.05, 0.3), "c": (-3.0, 3.0), "b": (-3.0, 3.0)},
        signed="a",
    ),
    "tanh": Curves(
        lambda x, a, c, b: a * np.tanh(x - c) + b,
        {"a": (1.0, 5.0), "c": (-3.0, 3.0), "b": (-3.0, 3.0)},
        signed="a",
    ),
    "absolute": Curves(
        lambda x, a, c, b: a * np.abs(x - c) + b,
        {"a": (0.5, 1.5), "c": (-3.0, 3.0), "b": (-3.0, 3.0)},
        signed="a",
    ),
}


class Sinusoids(TaskSource):
    """Endless regression tasks: task i of a split is a function of (seed, split, i) alone.

    A task has one family, which is its group, and one draw of that family's parameters
    (``CURVES``); its points are x uniform in [-5, 5], [B, S, 1], and y = f(x) plus normal
    noise, [B, S, 1]. Splits are different streams of the same distribution.
    """

    licence = "synthetic, none needed"

    def __init__(self, options: SinusoidsOptions, context: Context):
        self.options = options
        self.seed = context.seed
        self.shape = TaskShape("regression", (1,), 1, options.shots, options.queries)
        self.group_names = options.families
        self._device, self._dtype = context.device, getattr(torch, context.dtype)
        text = repr((_DRAWING, self.seed, options))
        self.fingerprint = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        numbers = id_array(ids)
        x = (2 * self._draw(split, "x", numbers) - 1) * LIMIT
        y = self._curve(split, numbers, x) + self._noise(split, numbers)
        x_tensor, y_tensor = self._tensor(x)[..., None], self._tensor(y)[..., None]
        shots = self.options.shots
        return TaskBatch(
            support_x=x_tensor[:, :shots],
            support_y=y_tensor[:, :shots],
            query_x=x_tensor[:, shots:],
            query_y=y_tensor[:, shots:],
            task_ids=torch.from_numpy(numbers).to(self._device),
        )

    def groups(self, split: str, ids: Ids) -> Tensor:
        """[n] long, on the CPU: each task's family."""
        return torch.from_numpy(self._families(split, id_array(ids)))

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        """The family, which is the group, and its parameters."""
        numbers = np.array([task_id])
        family = self.group_names[self._families(split, numbers)[0]]
        parameters = self._parameters(split, family, numbers)
        return {
            "group": family,
            "parameters": {name: float(value[0]) for name, value in parameters.items()},
        }

    def summary(self) -> dict[str, Any]:
        return {"families": ", ".join(self.group_names), "noise": self.options.noise}

    def _key(self, split: str, use: str) -> int:
        if split not in SPLITS:
            raise DataError(f"sinusoids: no split {split!r}; it has {', '.join(SPLITS)}")
        return derive(self.seed, "sinusoids", split, use)

    def _draw(self, split: str, use: str, ids: np.ndarray) -> np.ndarray:
        """[n, S + Q] uniform in [0, 1)."""
        points = np.arange(self.options.shots + self.options.queries)
        return uniform(self._key(split, use), ids[:, None], points)

    def _families(self, split: str, ids: np.ndarray) -> np.ndarray:
        point = uniform(self._key(split, "family"), ids)
        return (point * len(self.group_names)).astype(np.int64)

    def _parameters(self, split: str, family: str, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Each parameter of the family [n]."""
        curves = CURVES[family]
        columns = np.arange(len(curves.ranges) + 1)[:, None]
        *draws, sign = uniform(self._key(split, "parameters"), ids, columns)
        values = {
            name: low + (high - low) * draw
            for (name, (low, high)), draw in zip(curves.ranges.items(), draws, strict=True)
        }
        if curves.signed is not None:
            values[curves.signed] *= np.where(sign < 0.5, -1.0, 1.0)
        return values

    def _curve(self, split: str, ids: np.ndarray, x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        families = self._families(split, ids)
        for position, family in enumerate(self.group_names):
            mine = families == position
            parameters = self._parameters(split, family, ids[mine])
            columns = {name: value[:, None] for name, value in parameters.items()}
            y[mine] = CURVES[family].function(x[mine], **columns)
        return y

    def _noise(self, split: str, ids: np.ndarray) -> np.ndarray | float:
        """Normal noise [n, S + Q] by the Box-Muller transform."""
        if not self.options.noise:
            return 0.0
        radius = np.sqrt(-2 * np.log1p(-self._draw(split, "noise radius", ids)))
        angle = 2 * np.pi * self._draw(split, "noise angle", ids)
        return self.options.noise * radius * np.cos(angle)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self._device, self._dtype)
