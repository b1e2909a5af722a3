"""``image_folder``: a folder for each class in one line, and every fault of one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image

import metaforge
from metaforge import image_index
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.image_files import read_images
from metaforge.image_listing import list_images
from metaforge.recipe import load as load_recipe
from metaforge.testing import datasets as laws
from metaforge.testing.conformance import laws_of
from metaforge.testing.law import check_all
from metaforge_image_folder import checks
from metaforge_image_folder.checks import check, facts
from metaforge_image_folder.options import ImageFolderOptions
from metaforge_image_folder.source import load
from tests.data.images import noise, write, write_folder

CLASSES, EACH = 16, 6
SMALL = {"ways": 2, "shots": 1, "queries": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("images") / "birds", CLASSES, EACH)


@pytest.fixture
def context(tmp_path) -> Context:
    return Context(cache_dir=tmp_path / "cache")


@pytest.fixture
def own(folder, tmp_path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(folder, tmp_path / "birds"))


def options(path: Path, **more) -> ImageFolderOptions:
    return ImageFolderOptions(path=path, **{**SMALL, **more})


def problems(path: Path, context: Context, **more) -> str:
    return "\n".join(check(options(path, **more), context))


# -- one line ------------------------------------------------------------------------


def test_own_images_in_one_line(folder, context):
    made = metaforge.create("dataset", "image_folder", path=folder, **SMALL, context=context)
    assert made.summary() == {
        "name": "birds",
        "train": "10 classes",
        "val": "3 classes",
        "test": "3 classes",
    }
    assert made.shape.input_shape == (3, 8, 8)
    told = made.describe_task("train", 3)
    assert told["classes"][0] == told["support"][0][0].partition("/")[0]
    pixels = np.asarray(Image.open(folder / told["support"][0][0])).transpose(2, 0, 1)
    batch = made.batch("train", [3])
    torch.testing.assert_close(batch.support_x[0, 0], torch.from_numpy(pixels / np.float32(255)))


def test_every_law(folder, context, tmp_path):
    groups = tmp_path / "groups.csv"
    lines = [f"class {c:02},group {c % 2}" for c in range(CLASSES)]
    groups.write_text("class,group\n" + "\n".join(lines))
    files = list_images(folder).files
    laws.check_task_source(
        lambda seed: load(
            options(
                folder, shots=[1, 2], group=groups, within=0.5, sample_group=r"(\d)\.png",
                split=(0.5, 0.25, 0.25),
            ),
            Context(seed=seed, cache_dir=context.cache_dir),
            None,
        ),
        tasks=200,
        sample_groups={file: int(file[-5]) for file in files},
    )  # fmt: skip


def test_a_source_whose_film_is_on_both_sides_is_rejected(folder, context):
    """The pattern is what keeps films apart: without it the law is broken."""
    made = load(options(folder, split=(0.5, 0.25, 0.25)), context, None)
    with pytest.raises(AssertionError, match="law of sample groups"):
        laws.check_sample_groups(
            laws.Drawn(made, "train", range(50)),
            {file: int(file[-5]) // 3 for file in list_images(folder).files},
        )


def test_on_disk_and_in_memory_are_the_same_tasks(folder, context):
    memory = load(options(folder), context, None)
    disk = load(options(folder, storage="disk"), context, None)
    assert disk.on_disk
    laws.assert_same(disk.batch("train", range(50)), memory.batch("train", range(50)), "disk")


def test_features_of_a_backbone(folder, context):
    def make(**more):
        given = {"path": folder, **SMALL, "backbone": "glyph_conv", **more}
        return metaforge.create("dataset", "image_folder", **given, context=context)

    features, both = make(), make(input="images", size=28, channels=1)
    assert features.shape.input_shape == (64,)
    assert both.shape.input_shape == (1, 28, 28)
    laws.assert_same(
        both.batch("test", range(9), view="features"), features.batch("test", range(9)), "features"
    )
    assert len(features.labelled_images("train")) == 10 * EACH
    assert features.labelled_images("train").shape == (1, 28, 28)
    assert make(input="images").shape.input_shape == (3, 8, 8)


@pytest.mark.parametrize("backbone", [None, "glyph_conv"])
def test_what_is_done_to_the_images_can_be_done_to_others(folder, context, backbone):
    made = metaforge.create(
        "dataset", "image_folder", path=folder, **SMALL, backbone=backbone, context=context
    )
    preprocess, told = made.preprocess(), made.describe_task("test", 1)
    files = [file for some in told["support"] for file in some]
    raw = read_images(folder, files, preprocess.images, context)
    found = torch.from_numpy(preprocess(raw, context))
    torch.testing.assert_close(found, made.batch("test", [1]).support_x[0], rtol=1e-4, atol=1e-5)


# -- splits and groups ---------------------------------------------------------------


def split_folder(root: Path, train: int = 6, val: int = 3, test: int = 3) -> Path:
    for name, count in {"train": train, "val": val, "test": test}.items():
        for number in range(count):
            for image in range(4):
                pixels = noise(4, 4, seed=crc32(f"{name} {number} {image}".encode()))
                write(root / name / f"{name} {number}" / f"{image}.png", pixels)
    return root


def test_split_folders(tmp_path, context):
    root = split_folder(tmp_path / "data")
    for given in ("auto", "folders"):
        made = load(options(root, split=given), context, None)
        told = {name: text for name, text in made.summary().items() if name != "name"}
        assert told == {"train": "6 classes", "val": "3 classes", "test": "3 classes"}
    assert made.describe_task("val", 0)["support"][0][0].startswith("val/val ")


def test_shares_divide_what_split_folders_hold(tmp_path, context):
    root = split_folder(tmp_path / "data")
    made = load(options(root, split=(0.5, 0.25, 0.25)), context, None)
    assert made.summary()["train"] == "6 classes"
    classes = {name for t in range(50) for name in made.describe_task("train", t)["classes"]}
    assert len({name.split()[0] for name in classes}) > 1


def test_a_split_folder_that_is_missing(tmp_path, context):
    root = split_folder(tmp_path / "data", val=0)
    assert "no class is in split 'val'" in problems(root, context)
    made = load(options(root, val_share=0.5), context, None)
    assert made.summary()["val"] == "3 classes"


def test_a_class_in_two_splits(tmp_path, context):
    root = split_folder(tmp_path / "data")
    write(root / "test" / "train 1" / "9.png", noise(4, 4))
    assert "several splits (1 classes, first 'train 1')" in problems(root, context)


def test_splits_of_a_table_of_classes_or_of_files(folder, tmp_path, context):
    names = ["train", "val", "test", "train"]
    words = {f"class {c:02}": names[c % 4] for c in range(CLASSES)}
    (tmp_path / "c.csv").write_text(
        "class,split\n" + "".join(f"{c},{s}\n" for c, s in words.items())
    )
    files = list_images(folder).files
    lines = "".join(f"{file},{words[file.partition('/')[0]]}\n" for file in files)
    (tmp_path / "f.csv").write_text(f"file,split\n{lines}")
    by_class = load(options(folder, split=tmp_path / "c.csv"), context, None)
    by_file = load(options(folder, split=tmp_path / "f.csv"), context, None)
    assert by_class.summary()["train"] == "8 classes"
    assert by_class.fingerprint == by_file.fingerprint


def test_faults_of_a_table_are_told_at_once(folder, tmp_path, context):
    table = tmp_path / "c.csv"
    table.write_text("class,split\nclass 00,train\nclass 0,val\nclass 00,test\n")
    found = problems(folder, context, split=table)
    assert "no class class 0 in" in found
    assert "; did you mean 'class " in found
    assert "class class 00 has two values, train and test" in found
    assert "has no split for 15: class 01, class 02" in found
    table.write_text("name,split\na,train\n")
    expected = "has columns name, split; expected class (or file) and split"
    assert expected in problems(folder, context, split=table)
    assert "expected class and group" in problems(folder, context, group=table)
    assert "no such file" in problems(folder, context, split=tmp_path / "none.csv")


def test_groups_by_folders(tmp_path, context):
    for group in range(4):
        write_folder(tmp_path / "data", 3, 4, prefix=f"script {group}/", first=3 * group)
    made = load(
        options(tmp_path / "data", group="folders", within=1, split_by="group",
                split=(0.5, 0.25, 0.25)),
        context, None,
    )  # fmt: skip
    told = made.describe_task("train", 0)
    assert {name.partition("/")[0] for name in told["classes"]} == {told["group"]}
    assert made.summary()["train"] == "6 classes"


def test_a_pattern_that_is_not_found(folder, context):
    found = problems(folder, context, sample_group=r"clip(\d)")
    assert "is not found in the paths of 96: class 00/0.png" in found
    with pytest.raises(ValueError, match="no regular expression"):
        options(folder, sample_group="(")


# -- forms ---------------------------------------------------------------------------


def test_the_form_that_is_asked_for(folder, context):
    assert load(options(folder, size=5), context, None).shape.input_shape == (3, 5, 5)
    grey = options(folder, size=(4, 6), channels=1)
    assert load(grey, context, None).shape.input_shape == (1, 4, 6)
    assert facts(grey, context).shape == (1, 4, 6)


def test_large_images_are_shrunk_and_it_is_said(tmp_path):
    lines: list[str] = []
    context = Context(cache_dir=tmp_path / "cache", report=lines.append)
    write_folder(tmp_path / "data", 12, 4, (100, 200))
    made = load(options(tmp_path / "data"), context, None)
    assert made.shape.input_shape == (1, 42, 84)
    assert lines == ["images of 100 x 200 are shrunk to 42 x 84: for another size set size"]
    assert facts(options(tmp_path / "data"), context).shape == (1, 42, 84)
    assert load(options(tmp_path / "data", size=(100, 200)), context, None).shape.input_shape == (
        1, 100, 200,
    )  # fmt: skip


# -- the cache -----------------------------------------------------------------------


def test_images_are_decoded_once(folder, context, monkeypatch):
    made = load(options(folder), context, None)
    monkeypatch.setattr(image_index, "image_blocks", None)
    again = load(options(folder), context, None)
    assert again.fingerprint == made.fingerprint


def test_a_changed_folder_is_read_anew(own, context):
    made = load(options(own), context, None)
    write(own / "class 00" / "0.png", noise(8, 8, 3, seed=99))
    assert load(options(own), context, None).fingerprint != made.fingerprint


@pytest.mark.parametrize("damage", ["cut", "note", "gone"])
def test_a_damaged_index_is_made_anew(folder, context, damage):
    made = load(options(folder), context, None)
    (path,) = (context.cache_dir / "images").iterdir()
    if damage == "cut":
        (path / "X.npy").write_bytes((path / "X.npy").read_bytes()[:-1])
    elif damage == "note":
        (path / "index.json").write_text("{")
    else:
        (path / "X.npy").unlink()
    assert load(options(folder), context, None).fingerprint == made.fingerprint


def test_what_is_interrupted_leaves_no_index(folder, context, monkeypatch):
    blocks = image_index.image_blocks

    def stopped(*given):
        yield next(blocks(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(image_index, "image_blocks", stopped)
    with pytest.raises(KeyboardInterrupt):
        load(options(folder), context, None)
    assert [path.name for path in (context.cache_dir / "images").rglob("*") if path.is_file()] == []


def test_a_cache_folder_that_cannot_be_made_or_has_no_room(folder, tmp_path, context, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="METAFORGE_CACHE"):
        load(options(folder), Context(cache_dir=tmp_path / "file"), None)
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr("metaforge.kept_images.shutil.disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"which has 0 MiB left: set METAFORGE_CACHE"):
        load(options(folder), context, None)


# -- faults --------------------------------------------------------------------------


def test_every_fault_of_the_files_is_told_at_once(own, context):
    whole = (own / "class 03" / "0.png").read_bytes()
    (own / "class 01" / "0.png").write_bytes(b"")
    (own / "class 02" / "0.png").write_bytes(b"no image")
    (own / "class 03" / "0.png").write_bytes(whole[:-40])
    (own / "class 04" / "0.png").unlink()
    (own / "class 04" / "0.png").symlink_to(own / "nowhere")
    write(own / "astray.png", noise(8, 8))
    shutil.copy(own / "class 07" / "0.png", own / "class 08" / "copy.png")
    for image in range(1, EACH):
        (own / "class 05" / f"{image}.png").unlink()
    shutil.rmtree(own / "class 06")
    (own / "class 06").mkdir()
    found = problems(own, context)
    for line in (
        "class 01/0.png: is empty (0 bytes)",
        "class 04/0.png: a link that leads nowhere",
        "1: astray.png; expected CLASS/IMAGE",
        "folders of classes without an image, 1: class 06",
        "class 02/0.png: is no image of a known format",
        "class 07/0.png = class 08/copy.png",
        "class 'class 05' has 1 rows; needs 3",
    ):
        assert line in found
    with pytest.raises(DataError) as caught:
        load(options(own), context, None)
    assert "class 01/0.png" in str(caught.value)


def test_every_image_that_cannot_be_read_is_told_by_the_run(own, context):
    whole = (own / "class 03" / "0.png").read_bytes()
    for number in (3, 4):
        (own / f"class {number:02}" / "0.png").write_bytes(whole[:-40])
    with pytest.raises(DataError) as caught:
        load(options(own), context, None)
    assert "2 images cannot be read" in str(caught.value)
    assert str(caught.value).startswith("image_folder: ")


@pytest.mark.parametrize("left", [1, 2])
def test_a_class_with_too_few_images(own, context, left):
    for image in range(left, EACH):
        (own / "class 00" / f"{image}.png").unlink()
    found = problems(own, context)
    assert f"class 'class 00' has {left} rows; needs 3" in found
    assert "too_few: drop or replace" in found
    assert not problems(own, context, too_few="drop")
    assert bool(problems(own, context, too_few="replace")) is (left == 1)


def test_the_same_image_in_two_classes(own, context):
    shutil.copy(own / "class 00" / "0.png", own / "class 01" / "copy.png")
    shutil.copy(own / "class 02" / "0.png", own / "class 02" / "copy.png")
    line = "class 00/0.png = class 01/copy.png"
    found = problems(own, context)
    assert line in found
    assert "class 02/copy.png" not in found
    with pytest.raises(DataError, match=line):
        load(options(own), context, None)
    assert line in problems(own, context)  # from the index now
    lines: list[str] = []
    told = Context(cache_dir=context.cache_dir, report=lines.append)
    assert not problems(own, context, duplicates="keep")
    load(options(own, duplicates="keep"), told, None)
    assert "2 images are copies of others, first class 00/0.png = class 01/copy.png" in lines[0]


def test_images_without_classes(tmp_path, context):
    write(tmp_path / "data" / "0.png", noise(4, 4))
    assert "lie in no folders of classes; expected" in problems(tmp_path / "data", context)


def test_no_folder(tmp_path, context):
    assert "no such folder" in problems(tmp_path / "none", context)
    (tmp_path / "empty").mkdir()
    assert "no image in it" in problems(tmp_path / "empty", context)


def test_one_name_in_two_spellings(own, context):
    shutil.copytree(own / "class 00", own / "caf\u00e9")
    shutil.copytree(own / "class 01", own / "cafe\u0301")
    assert "spelled in two ways" in problems(own, context)


def test_what_is_left_to_the_run_is_said(folder, tmp_path, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(checks, "_FILES", 10)
    context = Context(cache_dir=tmp_path, report=lines.append)
    assert not problems(folder, context)
    assert "the 96 images of" in lines[0]
    assert facts(options(folder), context).shape is None
    load(options(folder), Context(cache_dir=tmp_path), None)
    lines.clear()
    assert not problems(folder, context)
    assert not lines
    assert facts(options(folder), context).shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"within": 0.5}, "within: needs group"),
        ({"split": (0.5, 0.5, 0.5)}, "do not sum to 1"),
        ({"size": 20000}, "more than 100,000,000 pixels"),
        ({"split_values": {"train": "a"}}, "split_values: not read"),
        ({"backbone": {"use": "glyph_conv"}, "augment": {"rotations": "all"}}, "not turned"),
        ({"backbone": {"use": "glyph_conv"}, "augment": {"crop": 1}}, "set input: images"),
    ],
)
def test_options_that_do_not_fit_are_refused(folder, given, message):
    with pytest.raises(ValueError, match=message):
        options(folder, **given)


def test_a_recipe_tells_all_faults_with_its_line(own, tmp_path):
    (own / "class 01" / "0.png").write_bytes(b"")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {use: image_folder, path: birds, ways: 2, queries: 2}\n"
        "inner: {use: ls}\n"
    )
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "mine.yaml")
    assert caught.value.exit_code == 3
    assert "mine.yaml:2: data: image_folder: " in str(caught.value)
    assert "class 01/0.png: is empty" in str(caught.value)


@pytest.mark.slow
def test_a_run_names_the_files_of_its_targets(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    found = metaforge.run(
        {
            "name": "birds",
            "data": {"use": "image_folder", "path": str(folder), **SMALL},
            "inner": {"use": "maml", "model": {"use": "mlp", "hidden": [8]}, "steps": 1},
            "bank": {"size": 30},
            "meta_train": {"steps": 4},
            "condition": {"steps": 2, "batch": 2, "top_m": 10},
            "evaluate": {"targets": 3},
            "output": str(tmp_path / "runs"),
        },
        quiet=True,
    )
    lines = (Path(found["run_dir"]) / "targets.jsonl").read_text().splitlines()
    for line in lines:
        record = json.loads(line)
        assert all((folder / file).is_file() for side in record["support"] for file in side)


@pytest.mark.slow
def test_it_conforms(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path))
    check_all(laws_of("dataset", "image_folder", {"path": str(folder), **SMALL}))
