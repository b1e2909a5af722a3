"""Small exact stand-ins: a source of points, and an inner algorithm whose optimum is known."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from metaforge import seeding
from metaforge.contracts import InnerAlgorithm
from metaforge.losses import task_losses
from metaforge.recipe.schema import Recipe
from metaforge.tasks import TaskBatch, TaskShape, TaskSource

DIM = 3


class Points(TaskSource):
    """Task i of a split is one centre in R^3; every sample of it is that centre.

    Even ids belong to group "even", odd ones to "odd", whose centres lie far apart.
    """

    shape = TaskShape("regression", (1,), DIM, shots=2, queries=4)
    fingerprint = "points"
    group_names = ("even", "odd")

    def centres(self, split: str, ids: Any) -> torch.Tensor:
        ids = [int(i) for i in ids]
        rows = [
            torch.randn(DIM, generator=seeding.generator(0, split, i), dtype=torch.float64)
            + (4.0 if i % 2 else -4.0)
            for i in ids
        ]
        return torch.stack(rows)

    def batch(self, split: str, ids: Any, view: str = "input") -> TaskBatch:
        centres = self.centres(split, ids)[:, None, :]
        ones = torch.ones(len(centres), 1, 1, dtype=torch.float64)
        return TaskBatch(
            ones.expand(-1, 2, 1),
            centres.expand(-1, 2, DIM),
            ones.expand(-1, 4, 1),
            centres.expand(-1, 4, DIM),
            task_ids=torch.as_tensor([int(i) for i in ids]),
        )

    def groups(self, split: str, ids: Any) -> torch.Tensor:
        return torch.as_tensor([int(i) % 2 for i in ids])

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        return {"group": self.group_names[task_id % 2]}


class Quadratic(InnerAlgorithm):
    """Alg(theta, D) = theta: L_i(theta) = mean_j (theta_j - c_ij)^2, no inner loop."""

    tasks = frozenset({"regression"})

    def init(self, shape, generator):
        return {"theta": torch.zeros(DIM, dtype=torch.float64)}

    def adapt(self, params, support, *, noise=None):
        return params

    def losses(self, params, tasks, *, training=False, noise=None):
        outputs = params["theta"].expand_as(tasks.query_y)
        return task_losses(outputs, tasks.query_y, tasks.query_mask)

    def predict(self, params, support, query_x):
        return params["theta"].expand(*query_x.shape[:2], DIM)

    def export(self, params, support):
        return nn.Identity()

    def diagnose(self, params, tasks, *, noise=None):
        return "inner step 0, tensor 'theta'"


def recipe(**sections: Any) -> Recipe:
    """A recipe with small sections; component choices are never looked up by these tests."""
    base: dict[str, Any] = {
        "data": {"use": "points"},
        "inner": {"use": "quadratic"},
        "precision": "float64",
        "bank": {"size": 20},
    }
    return Recipe.model_validate({**base, **sections})
