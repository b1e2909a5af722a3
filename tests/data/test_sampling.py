"""Drawing of tasks as row numbers: fair, pure, and clear about what cannot be drawn."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import time

import numpy as np
import pytest

from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.sampling import TaskSampler, distinct, id_array
from metaforge.sampling_checks import class_counts, problems
from metaforge.task_sizes import TaskSizes
from tests.data.classes import CLASSES, ROWS, drawers, pool, splits

IDS = np.arange(1000)


def sampler(pools=None, ways=5, shots=2, queries=3, too_few="error", seed=0) -> TaskSampler:
    return TaskSampler(pools or splits(), TaskSizes(ways, shots, queries, too_few), seed)


# -- distinct ------------------------------------------------------------------------


def test_distinct_gives_every_ordered_selection_equally_often():
    n = 24_000
    picks = distinct(7, np.full(n, 4), 3, np.arange(n))
    counts = [
        (picks == np.array(order)).all(1).sum() for order in itertools.permutations(range(4), 3)
    ]
    expected = n / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts)
    assert sum(counts) == n
    assert chi_square < 50  # 23 degrees of freedom: 50 has p = 0.001


def test_distinct_takes_all_of_a_small_set_first():
    picks = distinct(1, np.array([2, 5, 0]), 4, np.arange(3))
    assert sorted(picks[0].tolist()) == [-1, -1, 0, 1]
    assert picks[0, 2:].tolist() == [-1, -1]
    assert len(set(picks[1].tolist())) == 4
    assert picks[2].tolist() == [-1] * 4


def test_distinct_depends_on_its_own_counters_alone():
    whole = distinct(3, np.full((50, 4), 9), 5, np.arange(50)[:, None], np.arange(4))
    part = distinct(3, np.full((1, 4), 9), 5, np.array([[17]]), np.arange(4))
    assert (whole[17] == part[0]).all()


def test_ids_may_be_a_range_a_list_or_a_tensor():
    torch = pytest.importorskip("torch")
    for ids in (range(3), [0, 1, 2], torch.arange(3), np.arange(3)):
        assert id_array(ids).tolist() == [0, 1, 2]
        assert id_array(ids).dtype == np.int64


# -- tasks ---------------------------------------------------------------------------


def test_rows_belong_to_their_class_and_sides_are_disjoint():
    drawn = sampler().draw("test", IDS)
    owner = 21 + drawn.classes[..., None]
    assert (drawn.support // ROWS == owner).all()
    assert (drawn.query // ROWS == owner).all()
    rows = np.concatenate([drawn.support, drawn.query], axis=2)
    assert all(len(set(task.ravel())) == task.size for task in rows)


def test_labels_are_unbiased_over_classes():
    classes = sampler().draw("train", np.arange(14_000)).classes
    counts = np.stack([np.bincount(classes[:, label], minlength=14) for label in range(5)])
    assert abs(counts - 1000).max() < 150  # sd 30.5


def test_ids_far_apart_and_huge_are_drawn():
    ids = np.array([2**62, 5, 2**40 + 1])
    drawn = sampler().draw("train", ids)
    alone = sampler().draw("train", ids[:1])
    assert (drawn.support[0] == alone.support[0]).all()


def test_the_drawing_is_pinned():
    """If this changes, so do everyone's tasks: raise the drawing's number in ``pooled``."""
    drawn = sampler().draw("train", np.arange(100))
    digest = hashlib.blake2b(digest_size=8)
    for part in drawn[1:]:
        digest.update(np.ascontiguousarray(part, dtype=np.int32).tobytes())
    assert digest.hexdigest() == "43241213082a8410"
    grouped = sampler(splits(sample_groups=drawers())).draw("train", np.arange(100))
    digest = hashlib.blake2b(grouped.support.astype(np.int32).tobytes(), digest_size=8)
    assert digest.hexdigest() == "7df56656bc0f77c4"


def test_unequal_shots_cover_their_range():
    drawn = sampler(shots=(1, 4), queries=(2, 5)).draw("train", IDS)
    for rows, low, high in ((drawn.support, 1, 4), (drawn.query, 2, 5)):
        counts = (rows >= 0).sum(-1)
        shares = np.bincount(counts.ravel(), minlength=high + 1)[low:] / counts.size
        assert set(np.unique(counts)) == set(range(low, high + 1))
        assert abs(shares - 0.25).max() < 0.03
        assert (np.diff((rows >= 0).astype(int), axis=-1) <= 0).all()  # padding comes last


def test_within_groups_tasks_stay_in_one_and_groups_weigh_by_their_classes():
    groups = np.repeat([0, 1, 2], [8, 4, 2])
    pools = {
        "train": [
            pool(range(14), class_groups=groups, class_group_names=("a", "b", "c"), within=True)
        ]
    }
    one = sampler(pools, ways=3)
    drawn, (_, chosen) = one.draw("train", IDS), one.choose("train", IDS)
    assert (groups[drawn.classes] == chosen[:, None]).all()
    assert set(chosen) == {0, 1}  # c has 2 classes, too few for 3 ways
    assert abs((chosen == 0).mean() - 8 / 12) < 0.05


def test_pools_are_drawn_by_weight():
    pools = {"train": [pool(range(10), weight=3.0), pool(range(10, 20), name="faces", weight=1.0)]}
    drawn = sampler(pools).draw("train", IDS)
    assert abs((drawn.pools == 0).mean() - 0.75) < 0.05
    assert (drawn.support[drawn.pools == 1] // ROWS >= 10).all()


def test_thirty_thousand_tasks_over_two_thousand_classes_take_seconds():
    many = {"train": [pool(range(2000), rows=20)]}
    one = sampler(many, shots=1, queries=15)
    start = time.perf_counter()
    one.draw("train", np.arange(30_000))
    assert time.perf_counter() - start < 10  # 0.4 s on an idle core


# -- sample groups -------------------------------------------------------------------


def sides(drawn, groups):
    return [
        (set(groups[s].ravel()), set(groups[q].ravel())) for s, q in zip(*drawn[2:], strict=True)
    ]


def test_sample_groups_never_straddle_a_task_though_classes_share_them():
    groups = drawers()
    drawn = sampler(splits(sample_groups=groups), shots=3, queries=4).draw("train", IDS)
    assert all(not support & query for support, query in sides(drawn, groups))


def test_near_duplicate_frames_stay_on_one_side():
    """Groups of very unequal sizes, some of which must all go to one side."""
    sizes = [1, 1, 1, 2, 3, 4]
    groups = np.repeat(np.arange(CLASSES * len(sizes)), sizes * CLASSES)
    drawn = sampler(splits(sample_groups=groups), shots=2, queries=9).draw("train", IDS)
    assert all(not support & query for support, query in sides(drawn, groups))
    assert len({tuple(sorted(support)) for support, _ in sides(drawn, groups)}) > 900


def test_partly_shared_groups_are_divided_over_the_whole_task():
    """Each class has 3 of 5 families, so that sides chosen class by class would clash."""
    rows = np.arange(CLASSES * ROWS)
    groups = (rows // ROWS + rows % 3) % 5
    drawn = sampler(splits(sample_groups=groups), shots=1, queries=4).draw("train", IDS)
    assert all(not support & query for support, query in sides(drawn, groups))


def test_groups_that_no_task_can_divide_are_an_error():
    """Class 0 needs family 0 or 1 on each side, class 1 needs 1 or 2, class 2 needs 2 or 0:
    an odd cycle."""
    families = [(0, 1), (1, 2), (2, 0)]
    groups = np.concatenate([np.repeat(pair, ROWS // 2) for pair in families])
    pools = {"train": [pool(range(3), sample_groups=groups)]}
    with pytest.raises(DataError, match=r"task 0: found no classes whose sample groups leave"):
        sampler(pools, ways=3).draw("train", IDS)


def test_classes_that_cannot_be_divided_together_are_drawn_anew():
    """Classes 0, 1 and 2 share families in an odd cycle: no task has all three."""
    families = [(0, 1), (1, 2), (2, 0), (3, 4), (5, 6), (7, 8)]
    groups = np.concatenate([np.repeat(pair, ROWS // 2) for pair in families])
    one = sampler({"train": [pool(range(6), sample_groups=groups)]}, ways=4)
    drawn = one.draw("train", IDS)
    assert all(not support & query for support, query in sides(drawn, groups))
    tasks = {frozenset(task) for task in drawn.classes.tolist()}
    assert len(tasks) == 12  # of 15 sets of four, 3 hold the cycle
    assert not any(task >= {0, 1, 2} for task in tasks)
    alone = one.draw("train", IDS[17:18])
    assert (alone.support[0] == drawn.support[17]).all()


@pytest.mark.parametrize(
    ("sizes", "shots", "room"),
    [([1] * 12, 3, 9), ([6, 6], 1, 6), ([1, 4, 7], 2, 8), ([1, 11], 2, 1), ([12], 1, 0)],
)
def test_query_room_is_that_of_the_best_division(sizes, shots, room):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    assert class_counts(pool(range(1), sample_groups=groups)).query_room(shots) == [room]


# -- too few rows --------------------------------------------------------------------


def uneven() -> dict[str, list[Pool]]:
    """Six classes of 10 rows and two of 3 and 2."""
    sizes = [10] * 6 + [3, 2]
    ends = np.cumsum(sizes)
    members = tuple(np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True))
    return {"train": [Pool("p", members, tuple("abcdefgh"))]}


def test_too_few_rows_are_listed_class_have_need():
    found = problems(uneven(), TaskSizes(5, 1, 4))
    assert len(found) == 2
    assert "class 'g' has 3 rows; needs 5 (1 support + 4 query)" in found[0]
    assert "class 'h' has 2 rows" in found[1]
    assert "too_few: drop or replace" in found[1]
    with pytest.raises(DataError, match="class 'g' has 3 rows"):
        sampler(uneven(), shots=1, queries=4)


def test_drop_leaves_the_class_out():
    assert not problems(uneven(), TaskSizes(5, 1, 4, "drop"))
    drawn = sampler(uneven(), shots=1, queries=4, too_few="drop").draw("train", IDS)
    assert set(drawn.classes.ravel()) == set(range(6))
    found = problems(uneven(), TaskSizes(7, 1, 4, "drop"))
    assert found == [
        "split 'train': 6 of its 8 classes have enough rows, a task needs 7; "
        "lower ways, shots or queries, or give this split more classes"
    ]
    assert problems(uneven(), TaskSizes(9, 1, 1)) == [
        "split 'train': 8 of its 8 classes have enough rows, a task needs 9; "
        "lower ways, or give this split more classes"
    ]


def test_replace_repeats_query_rows_and_never_support_rows():
    drawn = sampler(uneven(), shots=1, queries=4, too_few="replace").draw("train", IDS)
    small = drawn.classes == 7
    assert small.any()
    support, query = drawn.support[small], drawn.query[small]
    assert (support >= 60 + 3).all()
    assert all(
        len(set(rows)) == 1 and rows[0] not in s for s, rows in zip(support, query, strict=True)
    )
    large = drawn.query[drawn.classes < 6]
    assert all(len(set(rows)) == 4 for rows in large)
    found = problems(uneven(), TaskSizes(5, 2, 4, "replace"))
    assert len(found) == 1
    assert "class 'h' has 2 rows; needs 3 (2 support + 1 query)" in found[0]


def test_replace_keeps_sample_groups_apart():
    groups = np.repeat(np.arange(CLASSES * 2), ROWS // 2)
    pools = splits(sample_groups=groups)
    assert "room for 6 queries" in problems(pools, TaskSizes(5, 2, 9))[0]
    drawn = sampler(pools, queries=9, too_few="replace").draw("train", IDS)
    assert (drawn.query >= 0).all()
    assert all(not support & query for support, query in sides(drawn, groups))


def test_many_small_classes_are_counted():
    found = problems({"train": [pool(range(30), rows=3)]}, TaskSizes(5, 1, 4))
    assert len(found) == 11
    assert "and 20 more classes" in found[-1]


# -- impossible pools ----------------------------------------------------------------


def test_every_problem_is_listed_at_once():
    pools = {
        "train": [pool(range(10))],
        "val": [pool(range(9, 12))],
        "test": [],
    }
    found = "\n".join(problems(pools, TaskSizes(5, 2, 20)))
    assert "splits 'train' and 'val' share 12 rows, first 108" in found
    assert "split 'val': class 'class 9' has 12 rows; needs 22" in found
    assert "split 'test': has no classes" in found


def test_a_row_in_two_classes_is_a_problem():
    twice = Pool("p", (np.arange(9), np.arange(8, 20)), ("a", "b"))
    assert "listed twice" in problems({"train": [twice]}, TaskSizes(2, 1, 1))[0]


def test_no_class_group_with_enough_classes_is_a_problem():
    groups = {"class_groups": np.arange(14) // 3, "class_group_names": tuple("abcde")}
    pools = {"train": [pool(range(14), within=True, **groups)]}
    assert (
        "no class group has the 5 classes of a task: the largest has 3"
        in (problems(pools, TaskSizes(5, 1, 1))[0])
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_groups": np.zeros(3, int)}, "differ in length"),
        ({"within": True}, "within needs class_groups"),
        ({"class_groups": np.arange(30), "class_group_names": ("a",)}, "run from 0 to 29"),
        ({"weight": 0.0}, "must be positive"),
    ],
)
def test_a_pool_that_does_not_fit_together_is_refused(fields, message):
    with pytest.raises(DataError, match=message):
        pool(**fields)


@pytest.mark.parametrize(
    ("ways", "shots", "queries"), [(1, 1, 1), (5, 0, 1), (5, 1, 0), (5, (3, 2), 1), (5, (0, 2), 1)]
)
def test_sizes_that_make_no_task_are_refused(ways, shots, queries):
    with pytest.raises(DataError, match=r"is (1|0|\(3, 2\)|\(0, 2\));"):
        TaskSizes(ways, shots, queries)


def test_sampling_and_the_checks_of_data_do_not_import_torch():
    code = (
        "import sys, metaforge.sampling, metaforge.sampling_checks, metaforge_arrays.layout, "
        "metaforge_sinusoids, metaforge_image_folder.checks, metaforge_table.layout, "
        "metaforge_torch.ready_tasks, metaforge.own_run; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
