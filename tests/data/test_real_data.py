"""``arrays`` on real images: figures that an independent reading of the files gave."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import RecipeError
from metaforge.losses import scores
from metaforge.recipe import load
from metaforge.testing import datasets as laws

ROOT = os.environ.get("METAFORGE_DATA")
pytestmark = pytest.mark.skipif(not ROOT, reason="METAFORGE_DATA does not name a folder")

CIFAR = {
    "path": "$METAFORGE_DATA/cifarfs_resnet20_embeddings.npz",
    "class_names": "class_names",
    "group": "class_superclass",
    "group_names": "superclass_names",
    "split": "cifarfs_split",
}
OMNIGLOT = {
    "path": "$METAFORGE_DATA/omniglot28_bits.npz",
    "x": "Xbits",
    "bits": [28, 28],
    "class_names": "class_names",
    "group": "class_alphabet",
    "group_names": "alphabet_names",
    "split": "class_vinyals_split",
}


def make(options, **more):
    return metaforge.create("dataset", "arrays", **{**options, **more})


def arrays(name: str):
    return np.load(Path(ROOT or "") / name)


def nearest_mean(source, tasks: int = 1000) -> float:
    """Percent of test queries whose nearest class mean (Euclidean) is their class's."""
    batch = source.batch("test", range(tasks))
    shape = source.shape
    support = batch.support_x.flatten(2).unflatten(1, (shape.outputs, shape.shots)).mean(2)
    return 100 * scores(-torch.cdist(batch.query_x.flatten(2), support), batch).mean().item()


@pytest.mark.parametrize(("shots", "percent"), [(1, 49.8), (5, 65.7)])
def test_cifar_fs_nearest_class_mean(shots, percent):
    assert abs(nearest_mean(make(CIFAR, shots=shots, normalize="l2")) - percent) < 1.2


@pytest.mark.parametrize(
    ("within", "shots", "percent"),
    [(False, 1, 42.2), (False, 5, 68.5), (True, 1, 35.4), (True, 5, 54.8)],
)
def test_omniglot_nearest_class_mean_on_pixels(within, shots, percent):
    """Against 3000 and more tasks drawn with numpy's own generator: standard error 0.2."""
    source = make(OMNIGLOT, shots=shots, within=within)
    assert abs(nearest_mean(source, 500) - percent) < 1.6


def test_cifar_fs_keeps_every_law():
    laws.check_task_source(lambda seed: make(CIFAR, context=Context(seed=seed)))


def test_omniglot_keeps_every_law_with_drawers_on_one_side():
    drawer = arrays("omniglot28_bits.npz")["drawer"]
    source = make(OMNIGLOT, sample_group="drawer", within=0.5, shots=[1, 4])
    drawn = [laws.Drawn(source, split, range(150)) for split in ("train", "val", "test")]
    for some in drawn:
        laws.check_shapes(some)
        laws.check_labels(some)
        laws.check_samples(some)
        laws.check_identity(some)
        laws.check_groups(some)
        laws.check_sample_groups(some, drawer)
    laws.check_splits(drawn)


def test_splits_are_the_files_own():
    split, names = (
        arrays("omniglot28_bits.npz")[k] for k in ("class_vinyals_split", "class_names")
    )
    source = make(OMNIGLOT)
    assert source.summary()["train"] == "1028 classes"
    for number, name in enumerate(("train", "val", "test")):
        told = [source.describe_task(name, task)["classes"] for task in range(100)]
        assert {c for classes in told for c in classes} <= set(names[split == number])


def test_alphabets_are_divided_between_the_splits():
    file = arrays("omniglot28_bits.npz")
    options = {
        "split": "class_lake_set",
        "split_values": {"train": 0, "test": 1},
        "split_by": "group",
        "val_share": 0.2,
    }
    source = make(OMNIGLOT, **options, within=True)
    groups = {
        split: set(source.groups(split, range(2000)).tolist()) for split in ("train", "val", "test")
    }
    assert [len(some) for some in groups.values()] == [24, 6, 20]
    assert not groups["train"] & groups["val"]
    background = set(
        file["alphabet_names"][np.unique(file["class_alphabet"][file["class_lake_set"] == 0])]
    )
    assert {source.group_names[g] for g in groups["train"] | groups["val"]} == background


def test_a_recipe_reads_the_file_and_its_check_finds_the_classes_with_too_few(tmp_path):
    recipe = {"data": {"use": "arrays", **CIFAR}, "inner": {"use": "maml"}}
    load(recipe)
    with pytest.raises(RecipeError) as caught:
        load(recipe, ["data.queries=200"])
    assert "class 'apple' has 200 rows; needs 201 (1 support + 200 query)" in str(caught.value)
    assert caught.value.exit_code == 3


def test_pixels_are_the_files_own():
    file = arrays("omniglot28_bits.npz")
    source = make(OMNIGLOT)
    batch, told = source.batch("test", [3]), source.describe_task("test", 3)
    rows = np.ravel(told["query"])
    pixels = np.unpackbits(file["Xbits"][rows], axis=1)[:, :784].reshape(-1, 1, 28, 28)
    assert (batch.query_x[0].numpy() == pixels).all()
    names = file["class_names"][file["y"][rows]].reshape(5, -1)
    assert all(set(line) == {name} for line, name in zip(names, told["classes"], strict=True))


def test_omniglot_turned_has_the_classes_that_the_field_counts(tmp_path):
    """1028 and 423 characters in four positions each (Snell et al. 2017, section 3.1: 4112)."""
    context = Context(cache_dir=tmp_path)
    source = metaforge.create(
        "dataset",
        "arrays",
        context=context,
        **OMNIGLOT,
        sample_group="drawer",
        storage="disk",
        augment={"rotations": "all"},
    )
    counts = {split: len(some[0].members) for split, some in source.sampler.pools.items()}
    assert counts == {"train": 4112, "val": 688, "test": 1692}
    held = make(OMNIGLOT, sample_group="drawer", augment={"rotations": "all"})
    laws.assert_same(source.batch("test", range(50)), held.batch("test", range(50)), "disk")
    assert source.shape.input_shape == (1, 28, 28)


# -- the same files as the data sets that they are of --------------------------------------------


def published(name, **options):
    return metaforge.create("dataset", name, **options)


FEATURES = {"path": CIFAR["path"], "normalize": "l2"}


@pytest.mark.parametrize(
    ("options", "shots", "percent"),
    [
        ({"split": "vinyals"}, 1, 41.6),
        ({"split": "vinyals"}, 5, 68.9),
        ({"split": "vinyals", "within": 1}, 1, 35.4),
        ({"split": "vinyals", "within": 1}, 5, 54.8),
        ({"split": "lake", "within": 1}, 1, 36.7),
        ({"split": "lake", "within": 1}, 5, 56.3),
    ],
)
def test_omniglot_nearest_class_mean(options, shots, percent):
    """Against 3000 tasks drawn with numpy's own generator: standard error 0.2."""
    source = published("omniglot", shots=shots, **options)
    assert abs(nearest_mean(source, 500) - percent) < 1.6


@pytest.mark.parametrize(("shots", "percent"), [(1, 49.8), (5, 65.7)])
def test_cifar_fs_nearest_class_mean_of_features(shots, percent):
    assert abs(nearest_mean(published("cifar_fs", shots=shots, **FEATURES)) - percent) < 1.2


def test_omniglot_is_whole_and_has_the_file_s_own_splits():
    file = arrays("omniglot28_bits.npz")
    for option, column, of_split in (
        ("vinyals", "class_vinyals_split", {"train": 0, "val": 1, "test": 2}),
        ("lake", "class_lake_set", {"train": 0, "val": 0, "test": 1}),
    ):
        source = published("omniglot", split=option)
        assert source.name == "omniglot"
        for split, (pool,) in source.sampler.pools.items():
            expected = set(file["class_names"][file[column] == of_split[split]])
            assert set(pool.class_names) <= expected
            assert option == "lake" or set(pool.class_names) == expected


def test_cifar_fs_has_the_file_s_own_split_and_superclasses():
    """The table of names against an independent one."""
    file = arrays("cifarfs_resnet20_embeddings.npz")
    source = published("cifar_fs", **FEATURES)
    for number, (pool,) in enumerate(source.sampler.pools.values()):
        assert set(pool.class_names) == set(file["class_names"][file["cifarfs_split"] == number])
        told = dict(zip(pool.class_names, pool.class_groups, strict=True))
        own = dict(zip(file["class_names"], file["class_superclass"], strict=True))
        for name, group in told.items():
            assert pool.class_group_names[group] == file["superclass_names"][own[name]]


def test_cifar_fs_gives_the_tasks_that_arrays_gives():
    ours, plain = published("cifar_fs", **FEATURES), make(CIFAR, normalize="l2")
    laws.assert_same(ours.batch("test", range(50)), plain.batch("test", range(50)), "the same")
