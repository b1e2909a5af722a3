"""``ready``: tasks as they are given, of learn2learn and others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, MetaforgeError
from metaforge.testing import datasets as laws
from metaforge_learn2learn import peer
from metaforge_torch.options import ReadyOptions
from metaforge_torch.ready import ReadyTasks
from metaforge_torch.ready_tasks import check, facts
from tests.small import SMALL as RECIPE

SIZES = {"ways": 3, "shots": 1, "queries": 2}


def task(seed: int, ways: int = 3, rows: int = 4, shape: tuple[int, ...] = (5,)):
    """Rows in any order, labels 0..ways-1; the first number of a row is its label."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(ways), rows))
    x = rng.normal(size=(ways * rows, *shape)).astype(np.float32)
    x.reshape(len(x), -1)[:, 0] = y
    return torch.from_numpy(x), torch.from_numpy(y)


TASKS = {
    "train": [task(n) for n in range(30)],
    "validation": [task(100 + n) for n in range(8)],
    "test": [task(200 + n) for n in range(12)],
}


def make(tasks=TASKS, **more) -> ReadyTasks:
    context = more.pop("context", None)
    given = SIZES | more
    return metaforge.create("dataset", "ready", tasks=tasks, **given, context=context)


def test_first_rows_of_a_class_are_its_support():
    made = make()
    batch, told = made.batch("test", [4]), made.describe_task("test", 4)
    assert batch.support_x[0, :, 0].tolist() == [0, 1, 2]
    assert batch.query_y.tolist() == [[0, 0, 1, 1, 2, 2]]
    x, y = TASKS["test"][told["task"] - 38]
    first = [int((y == c).nonzero()[0]) for c in range(3)]
    assert torch.equal(batch.support_x[0], x[first])
    assert told["support"] == [[f"{told['task']}:{row}"] for row in first]
    assert made.summary() == {"train": "30 tasks", "val": "8 tasks", "test": "12 tasks"}


def test_every_law():
    first = {"train": 0, "val": 1000, "test": 2000}
    tasks = {split: [task(n + own) for own in range(150)] for split, n in first.items()}
    laws.check_task_source(lambda seed: make(tasks, context=Context(seed=seed)), tasks=60)


def test_support_that_is_among_the_queries_is_rejected(monkeypatch):
    made = make()
    monkeypatch.setattr(made, "_tasks", made._tasks._replace(query=made._tasks.support))
    with pytest.raises(AssertionError, match="law of disjoint samples"):
        laws.check_samples(laws.Drawn(made, "train", range(5)))


def test_training_tasks_come_again_and_targets_do_not():
    made = make()
    again = replace(made.batch("train", range(30, 60)), task_ids=torch.arange(30))
    laws.assert_same(made.batch("train", range(30)), again, "again")
    with pytest.raises(DataError, match="there are 12 tasks of test, and number 12 is asked for"):
        made.batch("test", [3, 12])


def test_what_is_done_to_raw_samples():
    found = make().preprocess()
    rows = np.ones((2, 5), np.float32)
    assert (found(rows) == rows).all()


def test_bytes_become_floats():
    tasks = {
        split: [((x.abs() * 50).to(torch.uint8), y) for x, y in some]
        for split, some in TASKS.items()
    }
    batch = make(tasks).batch("train", range(4))
    assert batch.support_x.max() <= 1
    assert batch.support_x.dtype == torch.float32


def test_a_file_of_tasks(tmp_path):
    every = [pair for some in TASKS.values() for pair in some]
    arrays = {
        "x": np.stack([x for x, _ in every]),
        "y": np.stack([y for _, y in every]),
        "split": np.repeat(["train", "val", "test"], [30, 8, 12]),
    }
    np.savez(tmp_path / "t.npz", **arrays)
    made = make(None, path=tmp_path / "t.npz")
    assert made.fingerprint == make().fingerprint
    options = ReadyOptions(path=tmp_path / "t.npz", **SIZES)
    assert facts(options, Context()).shape == (5,)
    assert not check(options, Context())
    np.savez(tmp_path / "t.npz", **(arrays | {"y": arrays["y"][:, 1:]}))
    (line,) = check(options, Context())
    assert "found x [50, 12, 5], y [50, 11], split [50]; expected x [T, k, *x]" in line


@pytest.mark.parametrize(
    ("tasks", "more", "message"),
    [
        (TASKS["train"], {}, "data of type list: expected tasks for each of train, val and test"),
        ({**TASKS, "test": []}, {}, "of test is empty"),
        ({**TASKS, "test": iter([])}, {}, "of test has no length"),
        ({**TASKS, "test": [3]}, {}, "of test: task 0 is of type int"),
        ({**TASKS, "test": [task(0, shape=(6,))]}, {}, r"unlike shapes: \[12, 5\] \(38\)"),
        ({**TASKS, "test": [(torch.zeros(4, 5), torch.zeros(5))]}, {}, r"x \[4, 5\] and y \[5\]"),
        (TASKS, {"ways": 4}, r"task 0 of train: has 3 classes, expected 4 \(ways\)"),
        (TASKS, {"queries": 4}, r"class 0 has 4 rows; needs 5 \(1 support \+ 4 query\)"),
        (None, {}, "give path, a file of tasks, or from Python tasks"),
        ({**TASKS, "test": [(torch.full((12, 5), torch.nan), task(0)[1])]}, {}, "1 tasks hold NaN"),
    ],
)
def test_tasks_that_do_not_serve_are_told(tasks, more, message):
    with pytest.raises(DataError, match=message):
        make(tasks, **more)
    found = check(ReadyOptions(tasks=tasks, **(SIZES | more)), Context())
    assert found[0].startswith("ready: ")


class Endless:
    """What a Taskset of learn2learn without an end looks like."""

    task_transforms = ()
    num_tasks = -1

    def __init__(self, first):
        self.next = first

    def __len__(self):
        return 1

    def __getitem__(self, number):
        return self.sample()

    def sample(self):
        self.next += 1
        return task(self.next)


def test_of_a_taskset_without_end_some_are_drawn():
    def tasks():
        return SimpleNamespace(**{
            "_fields": ("train", "validation", "test"),
            "train": Endless(0), "validation": Endless(1000), "test": Endless(2000),
        })  # fmt: skip

    assert make(tasks(), draw=9).summary()["test"] == "9 tasks"
    with pytest.raises(DataError, match="of train has no end: say how many tasks, draw"):
        make(tasks())


def learn2learn_tasksets(tasks: int):
    try:
        peer.load()
        from learn2learn import data
    except (MetaforgeError, ImportError) as error:
        pytest.skip(f"learn2learn's data are not here: {error}")
    found = {}
    for split, first in {"train": 0, "validation": 20, "test": 30}.items():
        y = torch.arange(200) // 10
        x = torch.cat([(first + y)[:, None].float(), torch.arange(200.0)[:, None]], 1)
        made = data.MetaDataset(torch.utils.data.TensorDataset(x, first + y))
        steps = data.transforms
        parts = [steps.NWays(made, 3), steps.KShots(made, 3), steps.LoadData(made)]
        remap = steps.RemapLabels(made)
        found[split] = data.Taskset(made, [*parts, remap], num_tasks=tasks)
    return found


@pytest.mark.filterwarnings("ignore")
def test_tasksets_of_learn2learn():
    made = make(learn2learn_tasksets(6))
    batch = made.batch("test", range(6))
    assert batch.support_x.shape == (6, 3, 2)
    classes = torch.cat([batch.support_x[..., 0], batch.query_x[..., 0]], 1)
    assert (classes[:, 3:].view(6, 3, 2) == classes[:, :3, None]).all()


@pytest.mark.slow
def test_a_run_on_tasksets_keeps_them_as_files(tmp_path):
    tasks = {split: Endless(1000 * n) for n, split in enumerate(("train", "val", "test"))}
    small = {
        **RECIPE,
        "data": {"use": "sinusoids", "shots": 1, "queries": 2},
        "meta_train": {"steps": 4, "batch": 2, "validation_targets": 5},
        "bank": {"size": 20},
        "evaluate": {"targets": 3},
        "output": str(tmp_path / "runs"),
    }
    found = metaforge.run(small, {"data.ways": 3, "data.draw": 30}, data=tasks, quiet=True)
    again = metaforge.run(f"{found['run_dir']}/resolved.yaml", quiet=True)
    assert again["curve"] == found["curve"]
