"""``omniglot``: its three layouts are one data set, and what is wrong with them is told."""

from __future__ import annotations

import shutil
import zipfile

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.testing import datasets as laws

from .benchmark_files import (
    BACKGROUND,
    CHARACTERS,
    EVALUATION,
    SIDE,
    ink,
    png,
    write_lists,
    write_omniglot_archives,
    write_omniglot_bits,
    write_omniglot_folders,
)

WRITERS = {
    "folders": write_omniglot_folders,
    "archives": write_omniglot_archives,
    "bits": write_omniglot_bits,
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    root = tmp_path_factory.mktemp("omniglot")
    made = {name: write(root / name) for name, write in WRITERS.items()}
    write_omniglot_folders(root / "torchvision" / "omniglot-py")
    return made | {"torchvision": root / "torchvision"}


@pytest.fixture
def make(tmp_path):
    context = Context(cache_dir=tmp_path / "cache")

    def made(path, context=context, **options):
        given = {"whole": False, "ways": 4, "queries": 5, "val_share": 0.4} | options
        if given.get("split", "lake") != "lake":
            given.pop("val_share")
        return metaforge.create("dataset", "omniglot", context=context, path=path, **given)

    return made


def found(make, path, **options) -> str:
    with pytest.raises(DataError) as caught:
        make(path, **options)
    return str(caught.value)


# -- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["archives", "bits", "torchvision"])
def test_every_layout_has_the_same_tasks(make, roots, layout):
    one, other = make(roots["folders"]), make(roots[layout])
    for split in ("train", "val", "test"):
        ids = range(20)
        laws.assert_same(one.batch(split, ids), other.batch(split, ids), layout)
        for task in ids:
            told = [source.describe_task(split, task)["classes"] for source in (one, other)]
            assert told[0] == told[1]
    assert one.fingerprint == other.fingerprint


def test_layouts_whose_images_differ_have_other_fingerprints(make, roots, tmp_path):
    root = shutil.copytree(roots["folders"], tmp_path / "changed")
    first = sorted(root.rglob("*.png"))[0]
    first.write_bytes(png(255 * ink(999, 1), "1"))
    assert make(root).fingerprint != make(roots["folders"]).fingerprint


def test_pixels_are_the_drawings(make, roots):
    source = make(roots["archives"])
    batch, told = source.batch("test", [3]), source.describe_task("test", 3)
    assert batch.support_x.shape == (1, 4, 1, SIDE, SIDE)
    names = [f"{alphabet}/character{n:02d}" for alphabet in (*BACKGROUND, *EVALUATION)
             for n in range(1, CHARACTERS + 1)]  # fmt: skip
    for image, label in zip(batch.support_x[0].numpy(), told["classes"], strict=True):
        number = names.index(label) + 1
        drawn = [ink(number, drawer) for drawer in range(1, 21)]
        assert sum(np.array_equal(image[0], one) for one in drawn) == 1


def test_ink_is_0_where_it_is_not_inverted(make, roots):
    batches = [make(roots[name], invert=False).batch("train", range(9)) for name in WRITERS]
    ink_is_1 = make(roots["folders"]).batch("train", range(9))
    for batch in batches:
        assert torch.equal(batch.query_x, 1 - ink_is_1.query_x)


def test_size_is_that_of_the_images(make, roots):
    shape = make(roots["folders"], size=14).shape
    assert shape.input_shape == (1, 14, 14)
    assert "set size: 28, or place Omniglot's archives" in found(make, roots["bits"], size=14)


def test_images_are_decoded_once(make, roots, tmp_path):
    said = []
    context = Context(cache_dir=tmp_path / "cache", report=said.append)
    first = make(roots["archives"], context)
    kept = list((tmp_path / "cache").rglob("*.npy"))
    assert len(kept) == 1
    changed = kept[0].stat().st_mtime_ns
    again = make(roots["archives"], context)
    assert again.fingerprint == first.fingerprint
    assert kept[0].stat().st_mtime_ns == changed
    # a kept file that is cut short, or has lost its note, is made anew
    kept[0].write_bytes(kept[0].read_bytes()[:-5])
    assert make(roots["archives"], context).fingerprint == first.fingerprint
    kept[0].with_suffix(".json").unlink()
    assert make(roots["archives"], context).fingerprint == first.fingerprint


def test_a_cache_folder_of_no_use_costs_the_cache_alone(make, roots, tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    context = Context(cache_dir=tmp_path / "file" / "cache", report=said.append)
    source = make(roots["archives"], context)
    assert any("set METAFORGE_CACHE" in line for line in said)
    assert source.fingerprint == make(roots["bits"]).fingerprint
    with pytest.raises(DataError, match="set METAFORGE_CACHE"):
        make(roots["archives"], context, storage="disk")


@pytest.mark.parametrize("layout", WRITERS)
def test_on_disk_are_the_same_tasks(make, roots, layout):
    held, disk = make(roots[layout]), make(roots[layout], storage="disk")
    assert disk.on_disk
    laws.assert_same(held.batch("train", range(30)), disk.batch("train", range(30)), "disk")


# -- splits --------------------------------------------------------------------------------------


def classes_of(source) -> dict[str, set[str]]:
    return {
        split: {name for pool in pools for name in pool.class_names}
        for split, pools in source.sampler.pools.items()
    }


def alphabets_of(source) -> dict[str, set[str]]:
    return {split: {n.split("/")[0] for n in names} for split, names in classes_of(source).items()}


def test_lake_divides_the_background_alphabets_and_tests_on_the_others(make, roots):
    split = alphabets_of(make(roots["folders"]))
    assert split["test"] == set(EVALUATION)
    assert split["train"] | split["val"] == set(BACKGROUND)
    assert not split["train"] & split["val"]
    assert len(split["val"]) == 2
    seeds = [alphabets_of(make(roots["bits"], split_seed=seed))["val"] for seed in range(5)]
    assert len({frozenset(own) for own in seeds}) > 1


def test_alphabets_are_divided_by_shares(make, roots):
    options = {"split": "alphabets", "shares": [0.4, 0.3, 0.3]}
    split = alphabets_of(make(roots["folders"], **options))
    assert [len(own) for own in split.values()] == [3, 2, 2]
    assert set.union(*split.values()) == {*BACKGROUND, *EVALUATION}


def test_vinyals_split_is_told_by_bits_or_by_lists(make, roots, tmp_path):
    by_bits = make(roots["bits"], split="vinyals")
    lists = write_lists(tmp_path / "lists")
    by_lists = make(roots["archives"], split="vinyals", lists=lists)
    assert classes_of(by_bits) == classes_of(by_lists)
    assert by_bits.fingerprint == by_lists.fingerprint
    assert len(alphabets_of(by_bits)["train"] & alphabets_of(by_bits)["test"]) > 1
    told = found(make, roots["folders"], split="vinyals")
    assert "told by omniglot28_bits.npz alone" in told
    assert "lists: a folder of train.txt" in told


def test_lists_that_do_not_fit_are_told_whole(make, roots, tmp_path):
    lists = write_lists(tmp_path / "lists")
    (lists / "val.txt").unlink()
    text = (lists / "train.txt").read_text()
    (lists / "test.txt").write_text("Klingon/character01\n" + text.splitlines()[0])
    told = found(make, roots["bits"], split="vinyals", lists=lists)
    assert "val.txt cannot be read (No such file or directory)" in told
    assert "'Klingon/character01'" in told
    assert "is in two splits" in told


def test_tasks_within_one_alphabet_have_it_as_their_group(make, roots):
    source = make(roots["folders"], within=1)
    for task in range(40):
        told = source.describe_task("train", task)
        assert {name.split("/")[0] for name in told["classes"]} == {told["group"]}


# -- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", WRITERS)
def test_it_keeps_every_law(make, roots, layout, tmp_path):
    def source(seed):
        return make(roots[layout], Context(seed=seed, cache_dir=tmp_path / "cache"), within=0.5)

    laws.check_task_source(source, tasks=100)


def test_drawers_are_on_one_side(make, roots):
    apart, mixed = (make(roots["bits"], drawers=on, shots=3) for on in (True, False))
    drawer = {
        f"{alphabet}/character{character:02d}/{by}": by
        for alphabet in (*BACKGROUND, *EVALUATION)
        for character in range(1, CHARACTERS + 1)
        for by in range(1, 21)
    }
    laws.check_sample_groups(laws.Drawn(apart, "train", range(40)), drawer)
    with pytest.raises(AssertionError):
        laws.check_sample_groups(laws.Drawn(mixed, "train", range(40)), drawer)


def test_turned_characters_are_further_classes(make, roots):
    source = make(roots["folders"], augment={"rotations": "train"})
    assert len(source.sampler.pools["train"][0].members) == 4 * 3 * CHARACTERS
    assert len(source.sampler.pools["test"][0].members) == 2 * CHARACTERS


def test_features_of_a_backbone(make, roots):
    source = make(roots["bits"], backbone={"use": "glyph_conv"})
    assert source.shape.input_shape == (64,)
    images = make(roots["bits"], backbone={"use": "glyph_conv"}, input="images")
    assert images.shape.input_shape == (1, SIDE, SIDE)
    seen = images.batch("test", range(3), view="features").support_x
    assert torch.equal(seen, source.batch("test", range(3)).support_x)
    assert source.labelled_images("val").shape == (1, SIDE, SIDE)


# -- what is wrong -------------------------------------------------------------------------------


def test_nothing_there_says_how_to_place_the_files(make, tmp_path):
    told = found(make, tmp_path)
    assert f"{tmp_path} has none of its files; place there one of:" in told
    assert "omniglot-py/images_background" in told
    assert "images_background.zip" in told
    assert "omniglot28_bits.npz" in told
    assert "no such folder" in found(make, tmp_path / "nowhere")


def test_a_part_is_not_taken_for_the_whole(make, roots):
    said = []
    told = found(make, roots["folders"], whole=True)
    assert "images_background has 30 characters, Omniglot has 964" in told
    assert "images_evaluation has 12 characters, Omniglot has 659" in told
    assert "whole: false" in told
    source = make(roots["folders"], Context(report=said.append))
    assert "in part: 42 classes" in source.name
    assert any("Omniglot has 964" in line for line in said)


def test_one_set_of_the_two(make, roots, tmp_path):
    shutil.copy(roots["archives"] / "images_background.zip", tmp_path)
    assert "images_evaluation.zip: no such file" in found(make, tmp_path)
    shutil.copytree(roots["folders"] / "images_background", tmp_path / "f" / "images_background")
    assert "images_evaluation: no such folder" in found(make, tmp_path / "f")


@pytest.mark.parametrize("damage", ["cut", "no archive"])
def test_a_damaged_archive(make, roots, tmp_path, damage):
    write_omniglot_archives(tmp_path)
    path = tmp_path / "images_background.zip"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"<html>")
    told = found(make, tmp_path)
    assert f"{path} is no whole archive" in told
    assert "get it again" in told


def test_damaged_members_are_all_told_when_they_are_read(make, tmp_path):
    write_omniglot_archives(tmp_path)
    path = tmp_path / "images_background.zip"
    with zipfile.ZipFile(path) as archive:
        members = [one for one in archive.infolist() if "Greek/character01" in one.filename][:2]
    data = bytearray(path.read_bytes())
    for member in members:
        data[member.header_offset + 30 + len(member.filename) + 40] ^= 0xFF
    path.write_bytes(data)
    told = found(make, tmp_path)
    assert "2 images cannot be read" in told
    assert "Greek/character01" in told
    assert not list((tmp_path / "cache").rglob("*.npy"))


def test_names_that_tell_no_drawer(make, tmp_path):
    write_omniglot_folders(tmp_path)
    first = sorted(tmp_path.rglob("*.png"))[0]
    first.rename(first.with_name("a.png"))
    told = found(make, tmp_path)
    assert "with the drawer's number behind: 'Braille/character01/a.png'" in told


def test_a_character_in_both_sets(make, tmp_path):
    write_omniglot_folders(tmp_path)
    shutil.copytree(tmp_path / "images_background/Greek", tmp_path / "images_evaluation/Greek")
    assert "characters that are in both sets: 'Greek/character01'" in found(make, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drawer": None}, "has no array 'drawer'"),
        ({"Xbits": np.zeros((5, 7), np.uint8)}, "Xbits is [5, 7] of uint8; expected uint8 [n, 98]"),
        ({"y": np.zeros(3, int)}, "one number for each of the 840 images"),
        ({"y": np.full(840, 99)}, "positions in the 42 class_names"),
        ({"class_lake_set": np.zeros(5, int)}, "an entry for each class"),
        ({"class_vinyals_split": np.zeros(5, int)}, "class_vinyals_split must have an entry"),
    ],
)
def test_packed_bits_that_do_not_fit(make, tmp_path, changes, words):
    assert words in found(make, write_omniglot_bits(tmp_path, **changes))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "alphabets", "val_share": 0.1}, "val_share: not read, as split is alphabets"),
        ({"lists": "x"}, "lists: not read, as split is lake"),
        ({"split": "alphabets", "shares": [0.5, 0.5, 0.5]}, "do not sum to 1"),
        ({"input": "features"}, "needs a backbone"),
        ({"backbone": {"use": "glyph_conv"}, "augment": {"crop": 2}}, "set input: images"),
        (
            {"backbone": {"use": "glyph_conv"}, "input": "images", "augment": {"rotations": "all"}},
            "images that are not turned",
        ),
    ],
)
def test_options_that_contradict(options, words, tmp_path):
    with pytest.raises(RecipeError, match=words):
        metaforge.create("dataset", "omniglot", path=tmp_path, **options)
