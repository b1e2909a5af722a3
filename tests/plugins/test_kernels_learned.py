"""The signature ``learned``: what its training sees, finds and repeats."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.learned import Learned
from metaforge_kernels.options import SignatureOptions
from tests.plugins.test_kernels import KERNELS, classification, regression
from tests.plugins.test_kernels_signatures import own_kind, two_kinds


def fitted(tasks: TaskBatch, seed: int = 0, **options) -> Learned:
    options = {"steps": 5} | options
    made = Learned(SignatureOptions(embedding="learned", **options), "test")
    made.fit(tasks, torch.Generator().manual_seed(seed))
    return made


def test_it_finds_the_kind_that_the_loudest_columns_hide() -> None:
    bank, _ = two_kinds()
    tasks, kind = two_kinds(seed=1)
    map_ = fitted(bank, normalize=False, steps=100, dimension=4)
    plain = KERNELS["linear"](embedding="mean", normalize=False).signature(tasks)
    assert own_kind(map_(tasks), kind) > 0.9 > 0.85 > own_kind(plain, kind)
    assert map_(tasks).shape == (len(tasks), 4)


def graded(n: int) -> TaskBatch:
    """Each task with its own mean of the last column, which varies least within a task."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(n, 16, 8, generator=random, dtype=torch.float64)
    x[..., 7] = 0.1 * x[..., 7] + torch.randn(n, 1, generator=random, dtype=torch.float64)
    y = torch.zeros(n, 16, dtype=torch.long)
    return TaskBatch(x[:, :8], y[:, :8], x[:, 8:], y[:, 8:], outputs=1)


def test_the_accuracy_is_of_tasks_held_out_of_the_training() -> None:
    bank = graded(200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    mixed_up = replace(bank, query_x=bank.query_x[order])
    trained, barely, by_chance = (
        fitted(tasks, steps=steps, normalize=False).state()["contrast_accuracy"]
        for tasks, steps in ((bank, 100), (bank, 1), (mixed_up, 100))
    )
    assert trained > 2 * barely
    assert by_chance < 0.15  # 1 in 40 expected


def test_nothing_is_held_out_of_a_handful_of_tasks() -> None:
    assert fitted(classification(n=4)).state() == {}
    assert torch.isfinite(fitted(classification(n=1))(classification(n=1))).all()


def test_the_same_generator_gives_the_same_bits() -> None:
    tasks = classification()
    torch.manual_seed(1)
    first = fitted(tasks)(tasks)
    torch.manual_seed(2)
    with torch.no_grad():
        again = fitted(tasks)(tasks)
    assert torch.equal(first, again)
    assert not first.requires_grad
    assert not torch.equal(first, fitted(tasks, seed=1)(tasks))


def test_labels_of_classification_are_not_read() -> None:
    tasks = classification()
    other = replace(tasks, support_y=tasks.support_y.flip(1), query_y=tasks.query_y.flip(1))
    assert torch.equal(fitted(tasks)(tasks), fitted(other)(other))


def test_regression_is_on_pairs_of_x_and_y() -> None:
    tasks = regression()
    map_ = fitted(tasks)
    assert not torch.allclose(map_(tasks), map_(replace(tasks, support_y=-tasks.support_y)))


def test_unequal_queries_are_drawn_from_those_that_are_there() -> None:
    tasks = classification()
    mask = tasks.query_mask.clone()
    mask[:, 4:] = 0
    short = replace(tasks, query_mask=mask)
    garbage = replace(short, query_x=torch.where(mask[..., None] > 0, tasks.query_x, torch.nan))
    assert torch.equal(fitted(short)(tasks), fitted(garbage)(tasks))


def test_the_record_has_width_and_accuracy() -> None:
    made = KERNELS["gaussian"](embedding="learned", steps=5)
    made.fit(classification(), torch.Generator().manual_seed(0))
    assert list(made.state()) == ["gamma", "contrast_accuracy"]


def test_refusals() -> None:
    with pytest.raises(PluginError, match="learned has to be fitted"):
        Learned(SignatureOptions(embedding="learned"), "test")(classification())
    with pytest.raises(PluginError, match="learned is fitted on the support and the queries"):
        fitted(classification().without_query())
    with pytest.raises(ValueError, match="take signature: support"):
        SignatureOptions(embedding="learned", signature="all")
    with pytest.raises(ValueError, match="moments does not read dimension and steps"):
        SignatureOptions(embedding="moments", steps=3, dimension=2)
