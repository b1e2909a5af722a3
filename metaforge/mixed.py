"""Tasks of several sources in one bank. Each source's tasks are drawn as it draws them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge import seeding
from metaforge.errors import DataError
from metaforge.sampling import id_array
from metaforge.tasks import Ids, TaskBatch, TaskShape, TaskSource, View

#: Part of the fingerprint: raised whenever the same options would draw other tasks.
_DRAWING = 1


class MixtureTasks(TaskSource):
    """Task i of a split is task i of one source, chosen by (seed, split, i) in proportion to
    the shares, and where a source is a mixture itself by streams of their own on every level.
    A task's group is its source. Classes and samples are told as ``source: name``.

    Raises ``DataError`` where the sources' tasks differ in kind, inputs, features or sizes.
    """

    def __init__(
        self, sources: Mapping[str, TaskSource], shares: Mapping[str, float], *, seed: int
    ):
        self.sources, self.shares, self.seed = dict(sources), dict(shares), seed
        self.shape = _common_shape(self.sources)
        self.has_features = _common_features(self.sources)
        self.group_names = tuple(self.sources)
        self.licence = "; ".join(dict.fromkeys(one.licence for one in self.sources.values()))
        self._upper = np.cumsum([shares[name] for name in self.sources])
        self.mixture_levels = levels(self.sources.values())
        #: A mixture of plain sources has the stream that it had before mixtures had levels.
        self._stream = ("mixture", self.mixture_levels) if self.mixture_levels else ("mixture",)
        drawn = (_DRAWING, *self._stream[1:], seed, [(name, shares[name]) for name in self.sources])
        told = repr((drawn, [one.fingerprint for one in self.sources.values()]))
        self.fingerprint = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        numbers = id_array(ids)
        chosen = self._choose(split, numbers)
        found = {
            int(which): self._source(which).batch(split, numbers[chosen == which], view)
            for which in np.unique(chosen)
        }
        if len(found) == 1:
            return next(iter(found.values()))
        places = {which: torch.from_numpy(np.flatnonzero(chosen == which)) for which in found}
        return _interleaved(found, places, len(numbers))

    def groups(self, split: str, ids: Ids) -> Tensor:
        """[n] long, on the CPU: each task's source."""
        return torch.from_numpy(self._choose(split, id_array(ids)))

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        which = self._which(split, task_id)
        name = self.group_names[which]
        told = self._source(which).describe_task(split, task_id)
        listed = {
            key: _of(name, told[key]) for key in ("classes", "support", "query") if key in told
        }
        return told | listed | {"group": name, "group_within": told.get("group")}

    def resized(self, ways: int) -> MixtureTasks:
        """Of those sources that have the classes for it; their shares keep their proportions."""
        found: dict[str, TaskSource] = {}
        lacking = []
        for name, source in self.sources.items():
            try:
                found[name] = source.resized(ways)
            except DataError as error:
                lacking.append(f"{name}: {error}")
        if not found:
            raise DataError("\n".join(lacking))
        total = sum(self.shares[name] for name in found)
        kept = {name: self.shares[name] / total for name in found}
        return MixtureTasks(found, kept, seed=self.seed)

    def summary(self) -> dict[str, Any]:
        shares = np.diff(self._upper, prepend=0.0)
        return {
            name: {"share": f"{100 * share:.3g} %", **source.summary()}
            for (name, source), share in zip(self.sources.items(), shares, strict=True)
        }

    def pictures(self, split: str, task_id: int) -> np.ndarray | None:
        return self._source(self._which(split, task_id)).pictures(split, task_id)

    def _which(self, split: str, task_id: int) -> int:
        """The source of one task."""
        return int(self._choose(split, np.array([task_id]))[0])

    def _source(self, which: int) -> TaskSource:
        return self.sources[self.group_names[which]]

    def _choose(self, split: str, ids: np.ndarray) -> np.ndarray:
        """[n]: the source of each task."""
        drawn = seeding.uniform(seeding.derive(self.seed, *self._stream, split), ids)
        return np.minimum(np.searchsorted(self._upper, drawn, side="right"), len(self._upper) - 1)


def levels(sources: Iterable[TaskSource]) -> int:
    """How many levels of mixtures there are among the sources."""
    return max(
        (1 + source.mixture_levels for source in sources if hasattr(source, "mixture_levels")),
        default=0,
    )


def _of(source: str, told: Any) -> Any:
    """Names of classes, or lists of sample numbers, with their source before each."""
    return [_of(source, one) for one in told] if isinstance(told, list) else f"{source}: {told}"


def _common_shape(sources: Mapping[str, TaskSource]) -> TaskShape:
    """The shape of every task; ``DataError`` where sources differ."""
    (first, one), *others = sources.items()
    for name, other in others:
        for field, mine in asdict(one.shape).items():
            if mine != (found := getattr(other.shape, field)):
                raise DataError(
                    f"mixture: sources {first!r} and {name!r} differ in {field.replace('_', ' ')}: "
                    f"{mine} and {found}; tasks of one bank are alike in it"
                    + ("" if field != "input_shape" else ": set data.projection: pca")
                )
    return one.shape


def _common_features(sources: Mapping[str, TaskSource]) -> bool:
    """Whether all have features beside their inputs; ``DataError`` where those are unlike."""
    if not any(source.has_features for source in sources.values()):
        return False
    found = {n: one.batch("train", [0], "features").support_x for n, one in sources.items()}
    widths = {name: tuple(x.shape[2:]) for name, x in found.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name}: {list(width)}" for name, width in widths.items())
        raise DataError(
            f"mixture: sources have features of unlike widths ({listed}): set data.projection: pca"
        )
    return True


def _interleaved(found: Mapping[int, TaskBatch], places: Mapping[int, Tensor], n: int) -> TaskBatch:
    """The batches' tasks, each batch's at its places of n."""
    first = next(iter(found.values()))
    joined: dict[str, Any] = {"outputs": first.outputs}
    for field in fields(first):
        like = getattr(first, field.name)
        if not isinstance(like, Tensor):
            continue
        values = like.new_empty(n, *like.shape[1:])
        for which, batch in found.items():
            values[places[which].to(like.device)] = getattr(batch, field.name)
        joined[field.name] = values
    return TaskBatch(**joined)
