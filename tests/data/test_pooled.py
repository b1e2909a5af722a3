"""``PooledTasks`` keeps every law of a task source."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from metaforge import index_tables, pooled
from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.sampling import TaskSampler
from metaforge.testing import datasets as laws
from tests.data.classes import CLASSES, ROWS, drawers, pool, source, splits


def within() -> dict:
    """Splits whose class groups have names in common, in another order in each."""
    names = {"train": ("a", "b"), "val": ("b", "a"), "test": ("b", "c")}
    parts = {"train": range(14), "val": range(14, 22), "test": range(22, CLASSES)}
    return {
        split: [
            pool(
                classes,
                class_groups=np.arange(len(classes)) % 2,
                class_group_names=names[split],
                within=True,
            )
        ]
        for split, classes in parts.items()
    }


def two_kinds() -> dict:
    return {
        "train": [pool(range(10)), pool(range(10, 16), name="faces", weight=2.0)],
        "val": [pool(range(16, 22))],
        "test": [pool(range(22, 30), name="faces")],
    }


SETTINGS = {
    "plain": {},
    "unequal": {"shots": (1, 4), "queries": (2, 6)},
    "sample groups": {"pools": splits(sample_groups=drawers()), "shots": (1, 3)},
    "within": {"pools": within(), "ways": 3},
    "two kinds": {"pools": two_kinds()},
    "replace": {"queries": 15, "too_few": "replace"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_law_over_a_thousand_tasks(name):
    groups = drawers() if name == "sample groups" else None
    laws.check_task_source(lambda seed: source(seed=seed, **SETTINGS[name]), sample_groups=groups)


@pytest.mark.slow
def test_another_process_draws_the_same_tasks():
    one = source(shots=(1, 4), pools=splits(sample_groups=drawers()))
    one.batch("train", range(2000))
    laws.check_processes(laws.Drawn(one, "train", range(50)))


def test_support_rows_stand_class_by_class():
    batch = source(shots=(1, 2)).batch("train", range(20))
    assert (batch.support_y == torch.arange(5).repeat_interleave(2)).all()
    assert (batch.query_y == torch.arange(5).repeat_interleave(3)).all()
    assert (batch.support_mask.view(20, 5, 2)[..., 0] == 1).all()
    assert (batch.support_mask.view(20, 5, 2)[..., 1] == 0).any()
    assert batch.outputs == 5


def test_rows_are_those_that_the_description_and_the_index_name():
    one = source()
    batch, index = one.batch("test", [7]), one.index("test", [7])
    told = one.describe_task("test", 7)
    assert told["support"] == index.support[0].tolist()
    assert told["query"] == index.query[0].tolist()
    assert told["classes"] == [f"class {rows[0] // ROWS}" for rows in told["support"]]
    rows = torch.tensor(told["query"]).flatten()
    assert (batch.query_x[0, :, 0] == 1 + rows).all()
    features = one.batch("test", [7], "features")
    assert features.query_x.shape == (1, 15, 3)
    assert torch.allclose(features.query_x[0, :, 1], rows + 1.1)


def test_bytes_are_scaled_to_the_run_s_precision():
    x = torch.arange(CLASSES * ROWS).to(torch.uint8).view(-1, 1, 1, 1)
    one = pooled.PooledTasks(
        x,
        splits(),
        source().sampler.sizes,
        seed=0,
        name="bytes",
        scale=1 / 255,
        dtype=torch.float64,
    )
    batch = one.batch("train", range(4))
    rows = one.index("train", range(4)).support.reshape(4, -1)
    assert batch.support_x.dtype == batch.support_mask.dtype == torch.float64
    assert batch.support_x.shape == (4, 10, 1, 1, 1)
    expected = torch.from_numpy(rows % 256).double() / 255
    assert torch.allclose(batch.support_x[..., 0, 0, 0], expected, rtol=1e-15, atol=0)
    assert not one.has_features
    assert torch.equal(one.batch("train", range(4), "features").support_x, batch.support_x)


# -- index tables --------------------------------------------------------------------


def test_tables_are_drawn_once_and_forgotten_in_turn(monkeypatch):
    drawn = []
    draw = TaskSampler.draw

    def counting(self, split, ids):
        drawn.append(len(ids))
        return draw(self, split, ids)

    monkeypatch.setattr(TaskSampler, "draw", counting)
    monkeypatch.setattr(index_tables, "_TABLE_BYTES", 0)  # room for two tables
    one = source()
    first = one.batch("train", [5, 6])
    again = one.batch("train", [5, 6])
    one.batch("train", range(100, 200))
    assert drawn == [2, 1024]  # drawn alone, then tabulated at the second visit
    one.batch("train", range(1024, 1024 + 500))  # much of a block at once
    assert drawn == [2, 1024, 1024]
    one.batch("train", range(2048, 2048 + 500))  # the third block displaces the first
    forgotten = one.batch("train", [5, 6])
    assert drawn == [2, 1024, 1024, 1024, 2]
    laws.assert_same(first, again, "tables")
    laws.assert_same(first, forgotten, "tables")


def test_ids_scattered_over_a_huge_range_do_not_pay_for_their_neighbours(monkeypatch):
    drawn = []
    draw = TaskSampler.draw
    monkeypatch.setattr(
        TaskSampler, "draw", lambda self, s, ids: drawn.append(len(ids)) or draw(self, s, ids)
    )
    source().batch("train", [2**40 * k for k in range(12)])
    assert drawn == [12]


# -- groups --------------------------------------------------------------------------


def test_groups_of_one_name_are_one_group_in_every_split():
    one = source(within(), ways=3)
    assert one.group_names == ("a", "b", "c")
    for split in ("train", "val", "test"):
        for task, group in zip(range(50), one.groups(split, range(50)).tolist(), strict=True):
            told = one.describe_task(split, task)
            position = {"train": 0, "val": 14, "test": 22}[split]
            odd = {(int(name.split()[1]) - position) % 2 for name in told["classes"]}
            expected = {"train": "ab", "val": "ba", "test": "bc"}[split][odd.pop()]
            assert not odd
            assert one.group_names[group] == told["group"] == expected


def test_groups_are_pools_where_their_names_differ():
    one = source(two_kinds())
    assert one.group_names == ("letters", "faces")
    assert set(one.groups("train", range(100)).tolist()) == {0, 1}
    assert set(one.groups("test", range(100)).tolist()) == {1}


def test_one_pool_has_no_groups_unless_asked():
    assert source().group_names == ()
    assert set(source().groups("train", range(20)).tolist()) == {-1}
    assert source(group_by="pool").group_names == ("letters",)
    assert source(within(), ways=3, group_by="none").group_names == ()


def test_tasks_across_groups_have_none_under_class_groups():
    pools = within()
    pools["train"].append(pool(range(14), name="across"))
    one = source(pools, ways=3, group_by="class_group")
    told = [one.describe_task("train", task) for task in range(100)]
    assert all((t["group"] is None) == (t["pool"] == "across") for t in told)
    assert {t["pool"] for t in told} == {"letters", "across"}


# -- fingerprints --------------------------------------------------------------------

VARIANTS = {
    "seed": {"seed": 1},
    "ways": {"ways": 4},
    "shots": {"shots": 3},
    "shot range": {"shots": (1, 2)},
    "queries": {"queries": 4},
    "too few": {"too_few": "drop"},
    "within": {"pools": within(), "ways": 3},
    "weight": {"pools": {s: [pool(range(9), weight=2.0)] for s in ("train",)}},
    "name": {"pools": splits(name="other")},
    "sample groups": {"pools": splits(sample_groups=drawers())},
    "groups": {"group_by": "pool"},
    "scale": {"scale": 0.5},
}


def test_the_fingerprint_changes_with_the_data_and_with_every_option():
    prints = {name: source(**options).fingerprint for name, options in VARIANTS.items()}
    prints["plain"] = source().fingerprint
    prints["dtype"] = _with_x(lambda x: x.double()).fingerprint
    prints["one number"] = _with_x(lambda x: x + torch.eye(*x.shape) * 1e-6).fingerprint
    assert len(set(prints.values())) == len(prints)
    assert source().fingerprint == prints["plain"]
    assert source(shots=(2, 2)).fingerprint == prints["plain"]


def _with_x(change):
    one = source()
    return pooled.PooledTasks(
        change(one._x), splits(), one.sampler.sizes, seed=0, name="numbers", features=one._features
    )


class _Shared(index_tables.IndexTables):
    """The broken specimen: what one thread asks for, another may overwrite."""

    def rows(self, split, ids):
        self.asked = ids
        time.sleep(1e-4)
        return super().rows(split, self.asked)


@pytest.mark.parametrize("kind", [index_tables.IndexTables, _Shared])
def test_two_threads_may_ask_a_source_for_tasks(kind, monkeypatch):
    monkeypatch.setattr(index_tables, "_BLOCK", 64)
    monkeypatch.setattr(index_tables, "_TABLE_BYTES", 1)
    alone, shared = source(), source()
    shared._tables = kind(shared.sampler)
    asked = [np.arange(start, start + 300) for start in range(0, 6000, 150)]
    expected = [alone.batch("train", ids).support_x for ids in asked]
    wrong = []

    def ask(order: list[int]) -> None:
        for i in order:
            if not torch.equal(shared.batch("train", asked[i]).support_x, expected[i]):
                wrong.append(i)

    both = [threading.Thread(target=ask, args=(list(range(40))[::way],)) for way in (1, -1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert bool(wrong) is (kind is _Shared)


# -- errors and the header -----------------------------------------------------------


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match=r"numbers: no split 'dev'; it has train, val, test"):
        source().batch("dev", [0])
    with pytest.raises(DataError, match="has row 419, but x has 360 rows"):
        source({"train": [pool(range(35))]})
    with pytest.raises(DataError, match="class 'class 0' has 12 rows; needs 22"):
        source(queries=20)


def test_the_header_counts_the_classes():
    assert source().summary() == {
        "name": "numbers",
        "train": "14 classes",
        "val": "7 classes",
        "test": "9 classes",
    }
    assert source(two_kinds()).summary()["train"] == "letters 10, faces 6 classes"


def test_the_header_says_how_many_classes_no_task_can_have():
    whole = pool(range(14, 20))
    short = Pool("short", (*whole.members, np.arange(300, 302)), (*whole.class_names, "tiny"))
    one = source({"train": [pool(range(14)), short]}, too_few="drop")
    assert one.summary()["train"] == "letters 14, short 6 of 7 classes"
    assert source(within_three(), ways=3).summary()["train"] == "12 of 14 classes"


def within_three() -> dict:
    groups = np.repeat([0, 1, 2], [8, 4, 2])
    return {
        "train": [pool(range(14), class_groups=groups, class_group_names=tuple("abc"), within=True)]
    }
