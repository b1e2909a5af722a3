"""The task source ``mixture``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.mixed import MixtureTasks
from metaforge.pooled import PooledTasks
from metaforge.preprocess import Preprocess
from metaforge.tasks import Ids, TaskBatch, TaskSource, View
from metaforge_mixture.options import MixtureOptions
from metaforge_mixture.projection import Projection, fit
from metaforge_mixture.shares import shares


def load(
    options: MixtureOptions, context: Context, sources: Mapping[str, TaskSource]
) -> MixtureTasks:
    """The sources, each through its projection. Raises ``DataError`` where their tasks differ
    in kind or size, and what ``projection.fit`` raises."""
    if options.projection != "none":
        sources = {name: _projected(source, options, name) for name, source in sources.items()}
    parts = shares(options.sources, options.weights)
    return MixtureTasks(sources, parts, seed=context.seed)


def _projected(source: TaskSource, options: MixtureOptions, name: str) -> TaskSource:
    if source.shape.kind != "classification":
        raise DataError(
            f"mixture: source {name!r} has {source.shape.kind} tasks, whose inputs mean something "
            "as they are; set data.projection: none"
        )
    projection = fit(source, options, name)
    if isinstance(source, PooledTasks) and source.is_fixed:  # projected once, not with every task
        return source.mapped(projection, projected_preprocess(source, projection))
    return ProjectedTasks(source, projection)


def projected_preprocess(source: TaskSource, projection: Projection) -> Preprocess | None:
    """What is done to a raw sample of the source, the projection last; None where not known."""
    before = source.preprocess("features" if source.has_features else "input")
    if before is None:
        return None
    arrays = (projection.shift.cpu().numpy(), projection.basis.cpu().numpy())
    return before.projected(*arrays, projection.normalize)


class ProjectedTasks(TaskSource):
    """A source's tasks with every sample projected as it is drawn."""

    def __init__(self, source: TaskSource, projection: Projection):
        self.source, self.projection = source, projection
        self.shape = replace(source.shape, input_shape=(projection.basis.shape[1],))
        self.licence, self.group_names = source.licence, source.group_names
        if hasattr(source, "mixture_levels"):
            self.mixture_levels = source.mixture_levels  # of mixtures within it
        text = f"{source.fingerprint} {projection.fingerprint}"
        self.fingerprint = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        tasks = self.source.batch(split, ids, "features" if self.source.has_features else "input")
        assert tasks.query_x is not None
        return replace(
            tasks,
            support_x=self._project(tasks.support_x, tasks.support_mask),
            query_x=self._project(tasks.query_x, tasks.query_mask),
        )

    def _project(self, x: Tensor, mask: Tensor) -> Tensor:
        """Padding stays zero, whatever the projection makes of it."""
        return self.projection(x.flatten(2)).masked_fill((mask == 0)[..., None], 0.0)

    def preprocess(self, view: View = "input") -> Preprocess | None:
        return projected_preprocess(self.source, self.projection)

    def resized(self, ways: int) -> ProjectedTasks:
        return ProjectedTasks(self.source.resized(ways), self.projection)

    def groups(self, split: str, ids: Ids) -> Tensor:
        return self.source.groups(split, ids)

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        return self.source.describe_task(split, task_id)

    def pictures(self, split: str, task_id: int) -> np.ndarray | None:
        return self.source.pictures(split, task_id)

    def summary(self) -> dict[str, Any]:
        return self.source.summary()
