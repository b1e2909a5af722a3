"""Data sets of Python: as a source, and kept as files that a run reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import metaforge
from metaforge import own_data
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.own_data import gathered, keep
from metaforge.testing import datasets as laws
from tests.small import SMALL as RECIPE

CLASSES, ROWS = 20, 6
SMALL = {"ways": 3, "shots": 1, "queries": 2}
X = np.random.default_rng(0).normal(size=(CLASSES * ROWS, 4)).astype(np.float32)
Y = np.repeat(np.arange(CLASSES), ROWS)
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


class Pictures(Dataset):
    """Images of Pillow, with names of the classes."""

    classes = tuple(f"bird {c}" for c in range(CLASSES))

    def __len__(self):
        return len(Y)

    def __getitem__(self, number):
        pixels = np.full((5, 4, 3), number, np.uint8)
        pixels[0, 0] = (1, 2, 3)
        return Image.fromarray(pixels), int(Y[number])


class Random(Pictures):
    def __getitem__(self, number):
        return torch.rand(3), int(Y[number])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TENSORS)


def make(data, **more):
    return metaforge.create("dataset", "torch", dataset=data, **SMALL, **more)


@pytest.mark.parametrize(
    "data",
    [TENSORS, list(TENSORS), (X, Y), [torch.from_numpy(X), Y.tolist()]],
    ids=["dataset", "list of pairs", "arrays", "tensor and list"],
)
def test_samples_are_those_of_arrays(data):
    arrays = metaforge.create("dataset", "arrays", x=X, y=Y, **SMALL)
    made = make(data)
    assert made.fingerprint == arrays.fingerprint
    laws.assert_same(made.batch("train", range(20)), arrays.batch("train", range(20)), "torch")


def test_every_law():
    films = np.arange(len(Y)) % 3
    laws.check_task_source(
        lambda seed: metaforge.create(
            "dataset", "torch", dataset=TENSORS, **(SMALL | {"ways": 2}), within=0.5,
            group=np.arange(CLASSES) % 2, split=np.arange(CLASSES) // 2 % 3, sample_group=films,
            normalize="standardize", context=Context(seed=seed),
        ),
        tasks=200,
        sample_groups=films,
    )  # fmt: skip


def test_pictures_have_channels_first_and_names_of_classes():
    made = make(Pictures())
    assert made.shape.input_shape == (3, 5, 4)
    told = made.describe_task("test", 0)
    ((first,), *_) = told["support"]
    assert told["classes"][0] == f"bird {first // ROWS}"
    image = made.batch("test", [0]).support_x[0, 0]
    torch.testing.assert_close(image[:, 0, 0], torch.tensor([1, 2, 3]) / 255)
    torch.testing.assert_close(image[:, 1, 1], torch.full((3,), first / 255))


def test_a_data_set_for_each_split():
    """Labels begin at 0 in each."""
    parts = {
        "train": TensorDataset(
            torch.zeros(60, 4) + torch.arange(60)[:, None], torch.arange(60) % 10
        ),
        "validation": TensorDataset(100 + torch.rand(24, 4), torch.arange(24) % 4),
        "test": [(np.float32([200, i]).repeat(2), f"owl {i % 5}") for i in range(30)],
    }
    made = make(parts)
    told = {name: text for name, text in made.summary().items() if name != "name"}
    assert told == {"train": "10 classes", "val": "4 classes", "test": "5 classes"}
    assert made.describe_task("test", 0)["classes"][0].startswith("test owl ")
    assert made.describe_task("train", 0)["classes"][0].startswith("train ")
    assert (made.batch("test", range(5)).support_x[..., 0] == 200).all()
    with pytest.raises(DataError, match="a data set for each split already"):
        make(parts, split=(0.5, 0.25, 0.25))


def test_random_samples_are_told():
    lines: list[str] = []
    gathered(Random(), Context(report=lines.append))
    assert "gives other numbers each time" in lines[0]
    lines.clear()
    gathered(TENSORS, Context(report=lines.append))
    assert not lines


class Fails(Pictures):
    def __getitem__(self, number):
        raise OSError("disk gone")


class Tasks(Pictures):
    task_transforms = ()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(), "Stream has no length and no samples by index; expected a map-style"),
        (iter(TENSORS), "has no length"),
        ("birds", "str has no length"),
        ([], "is empty"),
        ([1, 2, 3], "sample 0 is of type int; expected"),
        (Fails(), "sample 0 fails: OSError: disk gone"),
        (Tasks(), 'draws tasks, not samples: .* create\\("dataset", "ready", tasks=...\\)'),
        (
            [(torch.zeros(2 + (i == 7)), 0) for i in range(9)],
            r"\[2\] \(8\), \[3\] \(1\); others than the first in samples 7: bring",
        ),
        ([(torch.zeros(2, dtype=torch.bfloat16), 0)] * 3, "Tensor makes no array: .*BFloat16"),
        ([([[1], [1, 2]], 0)] * 3, "list makes no array"),
        ([(None, 0)] * 3, "NoneType of dtype object; expected numbers"),
        ({"train": TENSORS}, "data sets by train; expected train, val and test"),
        (
            {"train": TENSORS, "val": (X[:, :2], Y), "test": TENSORS},
            r"unlike shapes: train \[4\], val \[2\], test \[4\]",
        ),
        ((X, X[:, 0]), "looks like a regression target"),
    ],
)  # fmt: skip
def test_what_is_no_such_data_set_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        make(data)


def test_data_are_kept_whole_and_once(tmp_path, monkeypatch):
    arrays = {"x": X, "y": Y}
    place = keep(arrays, tmp_path / "data")
    stamp = (place / "x.npy").stat().st_mtime_ns
    assert keep(arrays, tmp_path / "data") == place
    assert (place / "x.npy").stat().st_mtime_ns == stamp
    assert keep({"x": X, "y": Y + 1}, tmp_path / "data") != place

    def stopped(file, values, **more):
        if values.ndim == 1:
            raise KeyboardInterrupt
        file.write(b"x")

    monkeypatch.setattr(own_data.np, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        keep({"x": X, "y": Y + 2}, tmp_path / "data")
    assert len(list((tmp_path / "data").iterdir())) == 2
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        keep({"x": X, "y": Y + 2}, tmp_path / "file")


SPLIT = {"train": list(TENSORS)[:60], "val": list(TENSORS)[60:84], "test": list(TENSORS)[84:]}


@pytest.mark.slow
@pytest.mark.parametrize("data", [TENSORS, SPLIT], ids=["one", "splits"])
def test_a_run_reads_its_own_copy(tmp_path, data):
    small = {
        **RECIPE,
        "data": {"use": "sinusoids", "shots": 1, "queries": 2},
        "meta_train": {"steps": 4, "batch": 2},
        "bank": {"size": 30},
        "evaluate": {"targets": 3},
        "output": str(tmp_path / "runs"),
    }
    first = metaforge.run(small, {"data.ways": 3}, data=data, quiet=True)
    again = metaforge.run(small, {"data.ways": 3}, data=data, quiet=True)
    assert first["run_dir"] != again["run_dir"]
    assert len(list((tmp_path / "runs" / "data").iterdir())) == 1
    assert first["curve"] == again["curve"]
    repeated = metaforge.run(Path(first["run_dir"]) / "resolved.yaml", quiet=True)
    assert repeated["curve"] == first["curve"]


def test_a_recipe_that_is_not_valid_is_told_before_the_data_are_read(tmp_path):
    with pytest.raises(RecipeError, match=r"inner\.stpes"):
        metaforge.run(RECIPE, "inner.stpes=3", f"output={tmp_path}/runs", data=Fails())
    assert not (tmp_path / "runs").exists()
