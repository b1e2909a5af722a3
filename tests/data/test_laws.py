"""Each check of the conformance kit rejects a source that breaks its law, and only that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from metaforge.pooled import PooledTasks
from metaforge.sampling import TaskSampler
from metaforge.testing import datasets as laws
from metaforge.testing.datasets import Drawn
from tests.data.classes import drawers, source

IDS = range(60)


def drawn(kind: type[PooledTasks] = PooledTasks, **options) -> Drawn:
    return Drawn(source(kind=kind, **options), "train", IDS)


class Stateful(PooledTasks):
    """Its tasks depend on how many batches were asked for."""

    calls = 0

    def batch(self, split, ids, view="input"):
        self.calls += 1
        return replace(
            super().batch(split, [int(i) + self.calls for i in ids], view),
            task_ids=torch.as_tensor(list(ids)),
        )


class Positional(PooledTasks):
    """A task's labels depend on where in the batch it stands."""

    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        shift = torch.arange(len(batch))[:, None]
        return replace(batch, query_y=(batch.query_y + shift) % 5)


class OneBased(PooledTasks):
    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        return replace(batch, support_y=batch.support_y + 1)


class NoQueriesOfOne(PooledTasks):
    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        return replace(batch, query_y=batch.query_y.clamp(max=3))


class DirtyPadding(PooledTasks):
    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        return replace(batch, support_x=batch.support_x + 1)


class NotFinite(PooledTasks):
    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        return replace(batch, query_x=batch.query_x / 0)


class OneClassTwice(PooledTasks):
    def describe_task(self, split, task_id):
        told = super().describe_task(split, task_id)
        return told | {"classes": [told["classes"][1], *told["classes"][1:]]}


class OtherFeatures(PooledTasks):
    """Features of other samples than the input's."""

    def batch(self, split, ids, view="input"):
        batch = super().batch(split, ids, view)
        if view == "input":
            return batch
        return replace(batch, query_x=batch.query_x.flip(1))


class WrongDescription(PooledTasks):
    def describe_task(self, split, task_id):
        return super().describe_task(split, task_id ^ 1)


class GroupOfPosition(PooledTasks):
    def groups(self, split, ids):
        return torch.arange(len(ids)) % 2


class GroupOutside(PooledTasks):
    def groups(self, split, ids):
        return torch.full((len(ids),), len(self.group_names))


class OtherElsewhere(PooledTasks):
    """Its pickled copy draws other tasks."""

    def __getstate__(self):
        state = super().__getstate__()
        sampler = self.sampler
        other = TaskSampler(sampler.pools, sampler.sizes, sampler.seed + 1)
        state["_tables"] = type(self._tables)(other)
        return state


class ShortLabels(PooledTasks):
    def batch(self, split, ids, view="input"):
        made = super().batch(split, ids, view)
        return replace(made, support_y=made.support_y.int())


class QueriesRenumbered(PooledTasks):
    """Labels of the queries are numbered from the last class on."""

    def batch(self, split, ids, view="input"):
        made = super().batch(split, ids, view)
        return replace(made, query_y=made.outputs - 1 - made.query_y)


class Shows(PooledTasks):
    """Images of its tasks; each specimen below spoils one thing."""

    def pictures(self, split, task_id):
        return np.full((self.shape.outputs, 1, 8, 8), task_id, np.uint8)


class ShowsReals(Shows):
    def pictures(self, split, task_id):
        return super().pictures(split, task_id) / 255


class ShowsLists(Shows):
    def pictures(self, split, task_id):
        return super().pictures(split, task_id).tolist()


class ShowsOneClass(Shows):
    def pictures(self, split, task_id):
        return super().pictures(split, task_id)[:1]


class ShowsChannelsLast(Shows):
    def pictures(self, split, task_id):
        return super().pictures(split, task_id).transpose(0, 2, 3, 1)


class ShowsOthers(Shows):
    calls = 0

    def pictures(self, split, task_id):
        self.calls += 1
        return super().pictures(split, task_id + self.calls)


@pytest.mark.parametrize(
    ("check", "specimen", "law"),
    [
        (laws.check_pictures, drawn(ShowsReals), "law of pictures: .* expected uint8"),
        (laws.check_pictures, drawn(ShowsLists), "law of pictures: .* expected an array"),
        (laws.check_pictures, drawn(ShowsOneClass), r"law of pictures: .* expected \[5, 1 or 3"),
        (laws.check_pictures, drawn(ShowsChannelsLast), "law of pictures: .* shape"),
        (laws.check_pictures, drawn(ShowsOthers), "law of pictures: .* each time"),
        (laws.check_purity, drawn(Stateful), "law of purity"),
        (laws.check_purity, drawn(Positional), "law of purity: another order"),
        (laws.check_labels, drawn(OneBased), "law of labels: support labels outside"),
        (laws.check_labels, drawn(NoQueriesOfOne), "law of labels: task 0 has"),
        (laws.check_shapes, drawn(DirtyPadding, shots=(1, 3)), "law of padding"),
        (laws.check_shapes, drawn(ShortLabels), "support_y is torch.int32, expected int64"),
        (laws.check_shapes, drawn(NotFinite), "query_x is not finite"),
        (laws.check_distinct_classes, drawn(OneClassTwice), "law of distinct classes"),
        (laws.check_identity, drawn(OneClassTwice), "law of identity"),
        (laws.check_identity, drawn(OtherFeatures), r"law of identity.*view features"),
        (laws.check_identity, drawn(WrongDescription), "law of identity"),
        (
            laws.check_identity,
            drawn(QueriesRenumbered),
            r"law of identity: task 0 has query labels",
        ),
        (laws.check_groups, drawn(GroupOfPosition), "law of groups"),
        (laws.check_groups, drawn(GroupOutside), "law of groups: outside -1..-1"),
    ],
    ids=lambda value: value.source.__class__.__name__ if isinstance(value, Drawn) else None,
)
def test_a_source_that_breaks_a_law_is_rejected(check, specimen, law):
    with pytest.raises(AssertionError, match=law):
        check(specimen)


def test_pictures_that_are_images_are_lawful():
    laws.check_pictures(drawn(Shows))


CHECKS = (
    laws.check_pictures,
    laws.check_purity,
    laws.check_labels,
    laws.check_shapes,
    laws.check_distinct_classes,
    laws.check_identity,
    laws.check_groups,
    laws.check_samples,
)


@pytest.mark.parametrize("check", CHECKS)
def test_a_lawful_source_passes(check):
    check(drawn(shots=(1, 3)))


def test_a_sample_on_both_sides_is_rejected(monkeypatch):
    plain_rows = TaskSampler._plain_rows

    def leaky(self, split, table, ids, classes):
        support, query = plain_rows(self, split, table, ids, classes)
        query[..., 0] = support[..., 0]
        return support, query

    monkeypatch.setattr(TaskSampler, "_plain_rows", leaky)
    specimen = drawn()
    laws.check_identity(specimen)  # the description is honest, so this law alone is broken
    with pytest.raises(AssertionError, match="law of disjoint samples: task 0"):
        laws.check_samples(specimen)


def test_a_support_sample_twice_is_rejected(monkeypatch):
    plain_rows = TaskSampler._plain_rows

    def doubled(self, split, table, ids, classes):
        support, query = plain_rows(self, split, table, ids, classes)
        return np.repeat(support[..., :1], 2, axis=-1), query

    monkeypatch.setattr(TaskSampler, "_plain_rows", doubled)
    with pytest.raises(AssertionError, match="has a support sample twice"):
        laws.check_samples(drawn())


def test_a_source_that_ignores_sample_groups_is_rejected():
    with pytest.raises(AssertionError, match="law of sample groups: task 0"):
        laws.check_sample_groups(drawn(), drawers())


def test_splits_that_share_samples_are_rejected():
    one = drawn()
    with pytest.raises(AssertionError, match="law of splits: train and train share"):
        laws.check_splits([one, Drawn(one.source, "train", range(60, 90))])


def test_a_source_that_ignores_its_seed_is_rejected():
    with pytest.raises(AssertionError, match="two seeds give the same tasks"):
        laws.check_seeds(lambda seed: source(), ["train"], IDS)


def test_a_source_without_a_seed_is_rejected():
    fresh = iter(range(100))
    with pytest.raises(AssertionError, match="one seed, twice"):
        laws.check_seeds(lambda seed: source(seed=next(fresh)), ["train"], IDS)


@pytest.mark.parametrize("value", ["same", None])
def test_a_fingerprint_that_is_not_one_is_rejected(value):
    """Constant, or a new one each time."""

    class Printed(PooledTasks):
        fingerprint = property(lambda self: value or str(id(self)), lambda self, fingerprint: None)

    with pytest.raises(AssertionError, match="law of fingerprints"):
        laws.check_seeds(lambda seed: source(seed=seed, kind=Printed), ["train"], IDS)


@pytest.mark.slow
def test_a_source_that_changes_in_another_process_is_rejected():
    with pytest.raises(AssertionError, match="law of processes: support_x differs"):
        laws.check_processes(drawn(OtherElsewhere))
