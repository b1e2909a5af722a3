"""The laws of both components, and what they compute."""

from __future__ import annotations

import pytest
import torch
from metaforge_sliced.kernel import Sliced
from metaforge_sliced.options import SlicedOptions, SoftmaxNearestOptions
from metaforge_sliced.weighting import SoftmaxNearest

from metaforge.errors import NumericError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.conformance import laws_of
from metaforge.testing.inner_algorithms import toy_tasks

LAWS = [*laws_of("task_kernel", "sliced"), *laws_of("task_weighting", "nearest")]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_law(law):
    law.check()


def fitted(tasks: TaskBatch, **options) -> Sliced:
    kernel = Sliced(SlicedOptions(**options))
    kernel.fit(tasks, torch.Generator().manual_seed(0))
    return kernel


def test_in_one_dimension_it_is_the_distance_of_sorted_samples():
    """Regression on x and y of which y is constant: the sets differ along x alone."""
    x = torch.tensor([[0.0, 1, 2, 3], [1, 2, 3, 4], [7, 3, 0, 1]]).double()[..., None]
    tasks = TaskBatch(x, torch.zeros_like(x), x, torch.zeros_like(x))
    kernel = fitted(tasks, directions=4000, quantiles=4)
    found = kernel.signature(tasks)
    along = (x.squeeze(2) / x.flatten().std()).sort(1).values
    expected = (
        torch.cdist(along, along).square() / 4 / 2
    )  # of a direction's x part, the mean is 1/2
    torch.testing.assert_close(torch.cdist(found, found).square(), expected, rtol=0.05, atol=1e-9)


def test_the_median_distance_is_the_unit_of_the_width():
    tasks = toy_tasks(TaskShape("classification", (5,), 3, shots=2, queries=2), 9)
    kernel = fitted(tasks)
    signatures = kernel.signature(tasks)
    distances = torch.cdist(signatures, signatures)
    median = distances[distances > 0].median()
    assert kernel.state()["median_distance"] == pytest.approx(float(median))
    wide = fitted(tasks, width=2.0)
    expected = (-0.5 * (distances / (2 * median)).square()).exp()
    torch.testing.assert_close(wide.gram(signatures, signatures), expected)


def test_samples_keep_to_their_class():
    """Two tasks with the same points in other classes are apart; under a kernel of means they
    would be the same."""
    x = torch.tensor([[0.0, 0], [0, 1], [5, 0], [5, 1]]).double()
    tasks = toy_tasks(TaskShape("classification", (2,), 2, shots=2, queries=1), 6)
    pair = TaskBatch(torch.stack([x, x]), torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]]), outputs=2)
    kernel = fitted(tasks)
    a, b = kernel.signature(pair)
    assert float((a - b).norm()) > 0.1


def test_tasks_that_are_all_the_same_are_an_error():
    tasks = toy_tasks(TaskShape("classification", (5,), 3, shots=2, queries=2), 1)[[0, 0, 0]]
    with pytest.raises(NumericError, match="all the same"):
        fitted(tasks)


def test_only_the_nearest_weigh_and_ties_share():
    cross = torch.tensor([[0.9], [0.5], [0.5], [0.1]], dtype=torch.float64)
    weighting = SoftmaxNearest(SoftmaxNearestOptions(neighbours=2, temperature=0.5))
    found = weighting.weights(None, cross, torch.ones(1).double())
    raw = torch.tensor([1.8, 1.0, 1.0], dtype=torch.float64).exp()
    torch.testing.assert_close(found[:, 0], torch.cat([raw / raw.sum(), torch.zeros(1).double()]))
