"""The signature ``classes``: its parts, what it sees, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from metaforge.errors import DataError, PluginError
from metaforge.tasks import TaskBatch
from metaforge.testing import kernels as laws
from metaforge_kernels import classes
from metaforge_kernels.options import SignatureOptions
from tests.plugins.test_kernels import KERNELS, classification, regression


def made(**options) -> classes.Classes:
    return classes.Classes(SignatureOptions(embedding="classes", **options), "test")


def fitted(tasks: TaskBatch, **options) -> classes.Classes:
    found = made(**options)
    found.fit(tasks, torch.Generator())
    return found


def without(tasks: TaskBatch, *dropped: tuple[int, int]) -> TaskBatch:
    """With samples (task, place) masked."""
    mask = tasks.support_mask.clone()
    for task, place in dropped:
        mask[task, place] = 0
    return replace(tasks, support_mask=mask)


def described(x: np.ndarray, y: np.ndarray, n_classes: int) -> list[np.ndarray]:
    """The four parts of one task, by their definitions."""
    rows = [x[y == c] for c in range(n_classes) if (y == c).any()]
    means = np.array([of_class.mean(0) for of_class in rows])
    over = np.concatenate([means.mean(0), np.abs(means).mean(0), np.square(means).mean(0)])
    squares = sum(np.square(of_class - of_class.mean(0)).sum(0) for of_class in rows)
    within = squares / max(1, len(y) - len(rows))
    spectrum = np.linalg.eigvalsh(np.cov(means.T, bias=True))[::-1][: n_classes - 1]
    spectrum[len(rows) - 1 :] = 0
    lengths = sorted((np.linalg.norm(a - b) for a, b in combinations(means, 2)), reverse=True)
    absent = [0.0] * (n_classes * (n_classes - 1) // 2 - len(lengths))
    return [over, within, spectrum, np.array(lengths + absent)]


@pytest.mark.parametrize("dropped", [[], [(1, 0)], [(1, 0), (1, 1), (4, 5)]], ids=str)
def test_parts_are_what_they_say(dropped: list[tuple[int, int]]) -> None:
    """Unequal shots, and a class of task 1 without samples."""
    tasks = without(classification(ways=4), *dropped)
    x, y = tasks.support_x.double().numpy(), tasks.support_y.numpy()
    keep = tasks.support_mask.numpy() > 0
    rows = [described(x[i][keep[i]], y[i][keep[i]], 4) for i in range(len(tasks))]
    parts = [np.array(part) for part in zip(*rows, strict=True)]
    expected = [(part - part.mean(0)) / part.std(0) / np.sqrt(part.shape[1]) for part in parts]
    found = fitted(tasks, normalize=False)(tasks).numpy()
    np.testing.assert_allclose(found, np.concatenate(expected, 1), rtol=1e-7, atol=1e-9)


def test_one_shot_has_no_scatter_within_classes() -> None:
    tasks = classification(shots=1)
    found = fitted(tasks)(tasks)
    assert torch.isfinite(found).all()
    assert found[:, 15:20].eq(0).all()
    parts = [found[:, :15], found[:, 20:22], found[:, 22:]]
    for part in parts:  # each of variance 1 in all
        assert part.square().mean(0).sum().item() == pytest.approx(1)


def test_fewer_dimensions_than_classes_leave_no_noise_in_the_spectrum() -> None:
    tasks = classification(ways=5)
    flat = replace(tasks, support_x=tasks.support_x[..., :2], query_x=tasks.query_x[..., :2])
    found = fitted(flat, normalize=False)(flat)
    assert found[:, 8:10].abs().min() > 0
    assert found[:, 10:12].eq(0).all()


def test_a_task_of_fewer_ways_than_the_bank_has_absent_classes() -> None:
    bank = classification(ways=3)
    two = without(bank, *((i, place) for i in range(len(bank)) for place in (4, 5)))
    short = TaskBatch(two.support_x[:, :4], two.support_y[:, :4])
    assert short.outputs == 2
    map_ = fitted(bank)
    torch.testing.assert_close(map_(short), map_(two))


def test_it_sees_how_samples_are_grouped_where_moments_do_not() -> None:
    tasks = classification()
    regrouped = replace(tasks, support_y=tasks.support_y.roll(1, 1))
    map_ = fitted(tasks)
    assert (map_(tasks) - map_(regrouped)).norm(dim=1).min() > 0.1
    moments = KERNELS["linear"](embedding="moments")
    moments.fit(tasks, torch.Generator())
    assert torch.equal(moments.signature(tasks), moments.signature(regrouped))


def test_distances_that_are_not_sorted_depend_on_the_numbering(monkeypatch) -> None:
    def unsorted(means: Tensor, present: Tensor) -> Tensor:
        c, d = torch.triu_indices(means.shape[1], means.shape[1], offset=1)
        return (means[:, c] - means[:, d]).norm(dim=-1)

    tasks = classification()
    kernel = laws.fitted(lambda: KERNELS["linear"](embedding="classes"), tasks)
    laws.check_label_numbering(kernel, tasks)
    monkeypatch.setattr(classes, "_distances", unsorted)
    with pytest.raises(AssertionError, match="numbering of classes"):
        laws.check_label_numbering(kernel, tasks)


def test_refusals() -> None:
    with pytest.raises(PluginError, match=r"'test'.*classes is for classification.*take embedding"):
        made().fit(regression(), torch.Generator())
    with pytest.raises(PluginError, match="classes has to be fitted"):
        made()(classification())
    with pytest.raises(DataError, match="bank tasks of 3 classes, and these have 4"):
        fitted(classification(ways=3))(classification(ways=4))
    with pytest.raises(ValueError, match=r"classes needs labels.*take signature: support"):
        SignatureOptions(embedding="classes", signature="all")
    options = SignatureOptions(embedding="classes")
    assert "classes is for classification" in options.unfit("regression")
    assert not options.unfit("classification")
