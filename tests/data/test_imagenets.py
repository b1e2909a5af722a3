"""``mini_imagenet`` and ``tiered_imagenet``: pickles, tables, folders."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context, load_attribute
from metaforge.errors import DataError
from metaforge.registry import get
from metaforge.testing import datasets as laws

from .benchmark_files import (
    COUNTS,
    SPLITS,
    TIERED,
    coloured,
    split_images,
    tiered_labels,
    write_caches,
    write_images,
    write_labelled,
    write_tiered,
)


@pytest.fixture
def make(tmp_path):
    context = Context(cache_dir=tmp_path / "cache")

    def made(name, path, context=context, **options):
        given = {"whole": False, "queries": 2, "size": 12} | options
        return metaforge.create("dataset", name, context=context, path=path, **given)

    return made


def found(make, name, path, **options) -> str:
    with pytest.raises(DataError) as caught:
        make(name, path, **options)
    return str(caught.value)


def checked(name, path, **options) -> list[str]:
    """What ``validate`` finds."""
    component = get("dataset", name)
    made = component.options_model(path=path, **options)
    return load_attribute(component.check)(made, Context())


# -- miniImageNet's pickles ----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_caches_of_image_data_and_class_dict(make, tmp_path, protocol):
    write_caches(tmp_path / "mini-imagenet", each=3, side=12, protocol=protocol)
    source = make("mini_imagenet", tmp_path)
    assert {s: len(own[0].members) for s, own in source.sampler.pools.items()} == COUNTS
    images = source.labelled_images("val")
    drawn, labels = split_images("val", 16, 3, 12)
    assert np.array_equal(images.images[images.rows].numpy(), drawn.transpose(0, 3, 1, 2))
    names = [images.names["class"][label] for label in images.labels["class"]]
    assert names == [f"n1{label:07d}" for label in labels]


def test_a_whole_set_is_taken_without_a_word(make, tmp_path):
    write_caches(tmp_path, each=600, side=2)
    source = make("mini_imagenet", tmp_path, size=2, whole=True, queries=599)
    assert source.name == "mini_imagenet"
    assert {len(rows) for own in source.sampler.pools.values() for rows in own[0].members} == {600}


def test_what_is_not_whole_is_refused_with_counts(make, tmp_path):
    write_caches(tmp_path, each=3, side=12)
    told = found(make, "mini_imagenet", tmp_path, whole=True)
    assert "classes have other numbers of images than 600: n00000000 3" in told
    assert checked("mini_imagenet", tmp_path, size=12) == told.splitlines()
    source = make("mini_imagenet", tmp_path)
    assert (
        source.name == "mini_imagenet, in part: 100 classes (64 train, 16 val, 20 test), 300 images"
    )


def test_learn2learns_name_of_val_serves(make, tmp_path):
    write_caches(tmp_path, side=12)
    path = tmp_path / "mini-imagenet-cache-val.pkl"
    path.rename(path.with_name("mini-imagenet-cache-validation.pkl"))
    assert make("mini_imagenet", tmp_path).summary()["val"] == "16 classes"


@pytest.mark.parametrize("named", [False, True])
def test_pickles_of_data_and_labels(make, tmp_path, named):
    write_labelled(tmp_path, "miniImageNet_category_split_{}.pickle", COUNTS, 12, named)
    path = tmp_path / "miniImageNet_category_split_train.pickle"
    path.rename(path.with_name("miniImageNet_category_split_train_phase_train.pickle"))
    told = make("mini_imagenet", tmp_path).describe_task("test", 0)["classes"]
    assert all(name.startswith("test thing" if named else "test ") for name in told)


def test_size_is_that_of_the_pickles(make, tmp_path):
    write_caches(tmp_path, side=12)
    told = found(make, "mini_imagenet", tmp_path, size=84)
    assert "its images are 12 x 12, and size is 84: set size: 12" in told


IMAGES = np.zeros((4, 12, 12, 3), np.uint8)
NO_CACHES = {
    "a list": ([1], "it holds a list"),
    "other entries": ({"x": 1, 5: 2}, "it holds 'x', 5"),
    "no bytes": ({"image_data": np.zeros((2, 3)), "class_dict": {}}, "no array of bytes"),
    "channels": (
        {"image_data": np.zeros((2, 3, 12, 12), np.uint8), "class_dict": {"a": [0, 1]}},
        "of 12 channels, not 1 or 3",
    ),
    "no classes": ({"image_data": IMAGES, "class_dict": []}, "no dict of classes"),
    "a row twice": (
        {"image_data": IMAGES, "class_dict": {"a": [0, 1], "b": [1, 2, 3]}},
        "class 'b' has a row that is listed twice",
    ),
    "a row too many": (
        {"image_data": IMAGES, "class_dict": {"a": [0, 1, 2, 3, 4]}},
        "not among the 4 images",
    ),
    "a row of no class": (
        {"image_data": IMAGES, "class_dict": {"a": [0, 1]}},
        "2 images are of no class, first row 2",
    ),
    "labels": ({"data": IMAGES, "labels": ["a"] * 4}, "its labels are not whole numbers"),
    "too few labels": ({"data": IMAGES, "labels": [1]}, "its labels are 1 numbers, for 4 images"),
    "no name": ({"data": IMAGES, "labels": [0, 1, 2, 3], "label2catname": {0: "a"}}, "lacks 1, 2"),
}


@pytest.mark.parametrize(("content", "words"), NO_CACHES.values(), ids=NO_CACHES)
def test_pickles_of_another_form(make, tmp_path, content, words):
    write_caches(tmp_path, side=12)
    path = tmp_path / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(content, 4))
    told = found(make, "mini_imagenet", tmp_path)
    assert told.startswith(f"mini_imagenet: {path}: ")
    assert words in told
    assert told.count("\n") == 0


def test_all_files_that_are_damaged_or_not_there_are_told(make, tmp_path):
    write_caches(tmp_path, side=12)
    for split, change in (("train", 0.9), ("val", 0), ("test", None)):
        path = tmp_path / f"mini-imagenet-cache-{split}.pkl"
        if change is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * change)])
    told = found(make, "mini_imagenet", tmp_path).splitlines()
    assert len(told) == 3
    assert "it is truncated" in told[0]
    assert "it is empty" in told[1]
    assert "cannot be read: No such file or directory" in told[2]


def test_nothing_in_a_pickle_runs(make, tmp_path):
    class Sings:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'sang')!r}, 'w').close()",))

    write_caches(tmp_path, side=12)
    evil = pickle.dumps({"image_data": IMAGES, "class_dict": Sings()}, 4)
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(evil)
    assert "it asks for builtins.exec" in found(make, "mini_imagenet", tmp_path)
    assert not (tmp_path / "sang").exists()
    pickle.loads(evil)
    assert (tmp_path / "sang").exists(), "the attack is none"


def test_a_class_in_two_splits_and_shapes_that_differ(make, tmp_path):
    write_caches(tmp_path, side=12)
    train = (tmp_path / "mini-imagenet-cache-train.pkl").read_bytes()
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(train)
    assert "classes are in the files of two splits" in found(make, "mini_imagenet", tmp_path)
    other = {"image_data": np.zeros((2, 9, 9, 3), np.uint8), "class_dict": {"a": [0, 1]}}
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(other, 4))
    assert "the images of the splits differ in shape" in found(make, "mini_imagenet", tmp_path)


# -- tables and folders --------------------------------------------------------------------------


def write_tables(root, classes=5, each=4, side=20):
    files = {}
    for split in SPLITS:
        lines = ["filename,label"]
        for label in range(classes):
            for row in range(each):
                name = f"n{SPLITS.index(split)}{label}_{row}.jpg"
                files[f"images/{name}"] = coloured([SPLITS.index(split), label, row], side)
                lines.append(f"{name},n{SPLITS.index(split)}{label}")
        (root / f"{split}.csv").parent.mkdir(parents=True, exist_ok=True)
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")
    write_images(root, files)
    return root


def test_images_and_a_table_for_each_split(make, tmp_path):
    write_tables(tmp_path / "miniimagenet")
    source = make("mini_imagenet", tmp_path)
    told = source.describe_task("val", 0)
    assert all(name.startswith("n1") for name in told["classes"])
    for label, rows in zip(told["classes"], told["support"], strict=True):
        assert all(str(row).startswith(f"{label}_") for row in rows)
    assert source.shape.input_shape == (3, 12, 12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "val.csv").unlink(), "val.csv: no such file; expected the columns"),
        (lambda root: (root / "val.csv").write_text("a,b\n"), "has 'a', 'b'; expected filename"),
        (lambda root: (root / "val.csv").write_text("filename,label\nx\n"), "a label: 2"),
        (lambda root: (root / "val.csv").write_bytes(b"\xff\xfe\x00"), "val.csv cannot be read"),
        (
            lambda root: (root / "val.csv").write_text("filename,label\nn00_0.jpg,n00\n"),
            "classes of another split: 'n00'",
        ),
        (
            lambda root: (root / "val.csv").write_text("filename,label\nnone.jpg,v\n"),
            "lacks 1 files of the tables: none.jpg",
        ),
        (
            lambda root: (root / "val.csv").write_text("filename,label\nn10_0.jpg,v\n" * 2),
            "lacks 1 files of the tables: filename",
        ),
        (
            lambda root: (root / "val.csv").write_text(
                "filename,label\nn10_0.jpg,v\nn10_0.jpg,v\n../train.csv,v\n"
            ),
            "names that lead out of the folder: '../train.csv'",
        ),
    ],
)
def test_tables_that_do_not_fit(make, tmp_path, change, words):
    change(write_tables(tmp_path))
    assert words in found(make, "mini_imagenet", tmp_path)


@pytest.mark.parametrize("name", ["mini_imagenet", "tiered_imagenet"])
def test_folders_of_splits(make, tmp_path, name):
    files = {
        f"{split}/n{split}{label}/{row}.jpg": coloured([label, row], 16)
        for split in ("train", "val", "test")
        for label in range(5)
        for row in range(4)
    }
    write_images(tmp_path / "data", files)
    source = make(name, tmp_path / "data")
    assert source.describe_task("test", 1)["support"][0][0].startswith("test/ntest")
    (tmp_path / "data/val/ntrain0").mkdir()
    (tmp_path / "data/train/ntrain0/0.jpg").rename(tmp_path / "data/val/ntrain0/0.jpg")
    assert "classes that are in two splits: 'ntrain0'" in found(make, name, tmp_path / "data")


# -- tieredImageNet's pickles --------------------------------------------------------------------


@pytest.mark.parametrize("npz", [False, True])
def test_images_of_png_files_or_an_array(make, tmp_path, npz):
    write_tiered(tmp_path / "tiered-imagenet", npz=npz, side=12)
    source = make("tiered_imagenet", tmp_path)
    images = source.labelled_images("test")
    labels = tiered_labels("test")
    first = images.images[images.rows[0]].numpy()
    assert np.array_equal(first, coloured([2, 0], 12).transpose(2, 0, 1))
    names = [images.names["class"][n] for n in images.labels["class"]]
    assert names == [f"test kind {label}" for label in labels["label_specific"]]
    groups = [images.names["group"][n] for n in images.labels["group"]]
    assert groups == [f"test family {label}" for label in labels["label_general"]]


def test_both_forms_have_the_same_tasks(make, tmp_path):
    one = make("tiered_imagenet", write_tiered(tmp_path / "a", side=12))
    other = make("tiered_imagenet", write_tiered(tmp_path / "b", npz=True, side=12))
    assert one.fingerprint == other.fingerprint
    laws.assert_same(one.batch("train", range(20)), other.batch("train", range(20)), "npz")
    disk = make("tiered_imagenet", tmp_path / "a", storage="disk")
    laws.assert_same(one.batch("train", range(20)), disk.batch("train", range(20)), "disk")


def test_tasks_within_a_superclass(make, tmp_path):
    source = make("tiered_imagenet", write_tiered(tmp_path, side=12), ways=2, within=1)
    for task in range(20):
        told = source.describe_task("train", task)
        number = int(told["group"].removeprefix("train family "))
        kinds = {
            int(name.removeprefix("train kind ")) // TIERED["train"][1] for name in told["classes"]
        }
        assert kinds == {number}


def test_labels_without_names_or_superclasses(make, tmp_path):
    write_tiered(tmp_path, side=12)
    for split in SPLITS:
        labels = {"labels": tiered_labels(split)["label_specific"].tolist()}
        (tmp_path / f"{split}_labels.pkl").write_bytes(pickle.dumps(labels, 2))
    source = make("tiered_imagenet", tmp_path)
    assert source.describe_task("val", 0)["classes"][0].startswith("val class ")
    assert "tell no groups" in found(make, "tiered_imagenet", tmp_path, within=0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label_specific": [1, 2]}, "its label_general are 48 numbers, for 2 images"),
        ({"label_specific": "x"}, "its label_specific are no list"),
        ({"label_specific_str": ["a"]}, "it has 1 names, and numbers from 0 to 11"),
        (
            {"label_general": np.arange(48) % 4},
            "images of one class are of several superclasses",
        ),
    ],
)
def test_labels_of_another_form(make, tmp_path, changes, words):
    told = found(make, "tiered_imagenet", write_tiered(tmp_path, side=12, **changes))
    assert told.startswith(f"tiered_imagenet: {tmp_path}/train_labels.pkl: ")
    assert words in told


def test_images_that_are_not_as_many_as_labels(make, tmp_path):
    write_tiered(tmp_path, side=12)
    labels = {"labels": [0, 1, 2, 3, 4] * 5}
    (tmp_path / "val_labels.pkl").write_bytes(pickle.dumps(labels, 2))
    told = found(make, "tiered_imagenet", tmp_path)
    assert "val_images_png.pkl: it holds 24 images, its labels are 25" in told
    for path in tmp_path.glob("*_images_png.pkl"):
        path.unlink()
    assert found(make, "tiered_imagenet", tmp_path).count("lacks") == 3


def test_an_array_that_is_not_as_size_says(make, tmp_path):
    write_tiered(tmp_path, npz=True, side=12)
    told = found(make, "tiered_imagenet", tmp_path, size=84)
    assert "images are [48, 12, 12, 3] of uint8; expected [48, 84, 84, 3]" in told


def test_a_pickle_cut_short_is_seen_at_once(make, tmp_path):
    write_tiered(tmp_path, side=12)
    path = tmp_path / "test_images_png.pkl"
    path.write_bytes(path.read_bytes()[:-10])
    lines = checked("tiered_imagenet", tmp_path, size=12, whole=False, queries=2)
    assert lines == [f"tiered_imagenet: {path} is cut short; copy it again"]


def test_damaged_images_are_all_told_by_their_place(make, tmp_path):
    write_tiered(tmp_path, side=12)
    path = tmp_path / "val_images_png.pkl"
    images = pickle.loads(path.read_bytes())
    images[3] = images[3][:50]
    images[7] = np.zeros((10, 1), np.uint8)
    images[9] = "no image"
    path.write_bytes(pickle.dumps(images, 2))
    told = found(make, "tiered_imagenet", tmp_path)
    assert "3 images cannot be read" in told
    for line in ("  3: is damaged", "  7: is no image", "  9: cannot be opened"):
        assert line in told


def test_an_array_cut_short(make, tmp_path):
    write_tiered(tmp_path, npz=True, side=12)
    path = tmp_path / "train_images.npz"
    path.write_bytes(path.read_bytes()[:-100])
    assert "train_images.npz is damaged" in found(make, "tiered_imagenet", tmp_path)


def test_images_that_memory_does_not_hold_are_refused_before_they_are_read(
    make, tmp_path, monkeypatch
):
    write_caches(tmp_path, side=12)
    monkeypatch.setattr("metaforge.memory.available", lambda device: 1000)
    told = found(make, "mini_imagenet", tmp_path)
    assert told.startswith(
        "mini_imagenet: its array of images takes 0.0 GB and 0.0 GB are free on cpu"
    )
    assert "set storage: disk" in told
    assert make("mini_imagenet", tmp_path, storage="disk").on_disk


def test_a_folder_of_its_name_comes_first(make, tmp_path):
    write_tables(tmp_path / "mini_imagenet")
    (tmp_path / "train").mkdir()
    assert make("mini_imagenet", tmp_path).summary()["train"] == "5 classes"


# -- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mini_imagenet", "tiered_imagenet"])
def test_it_keeps_every_law(make, tmp_path, name):
    write_caches(tmp_path, side=12)
    write_tiered(tmp_path, side=12)
    context = Context(cache_dir=tmp_path / "cache")

    def source(seed):
        return make(name, tmp_path, replace(context, seed=seed))

    laws.check_task_source(source, tasks=100)


def test_crops_and_mirrors_of_meta_training_alone(make, tmp_path):
    write_caches(tmp_path, side=12)
    plain, varied = (
        make("mini_imagenet", tmp_path, augment=augment)
        for augment in ({}, {"crop": 2, "flip": True})
    )
    for split, alike in (("train", False), ("test", True)):
        pair = [source.batch(split, range(5)).support_x for source in (plain, varied)]
        assert torch.equal(*pair) == alike
