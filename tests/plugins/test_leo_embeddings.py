"""``leo_embeddings``: tasks over files in the released form, and what is wrong with others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.recipe import load
from metaforge.registry import get
from metaforge.testing import datasets as laws
from metaforge_leo_embeddings.layout import check, facts
from metaforge_leo_embeddings.options import LeoEmbeddingsOptions

from .leo_embeddings_files import CLASSES, ROWS, SPLITS, entries, folder_of, pickled, write

SMALL = {"ways": 5, "shots": 1, "queries": 5}


@pytest.fixture
def root(tmp_path) -> Path:
    return write(tmp_path / "embeddings")


def make(root: Path, context: Context | None = None, **options):
    given = {"dir": root, **SMALL, **options}
    return metaforge.create("dataset", "leo_embeddings", context=context, **given)


def problems(root: Path, **options) -> list[str]:
    return check(LeoEmbeddingsOptions(**{"dir": root, **SMALL, **options}), Context())


def change(root: Path, split: str = "val", raw: bytes | None = None, **changed) -> Path:
    """Another file in the place of a split's: some entries changed, None for absent."""
    given = {**entries(split), **changed}
    data = pickled({name: value for name, value in given.items() if value is not None})
    path = folder_of(root) / f"{split}_embeddings.pkl"
    path.write_bytes(data if raw is None else raw)
    return path


def refusal(root: Path, **options) -> str:
    """What both the check and loading say, which is the same."""
    with pytest.raises(DataError) as caught:
        make(root, **options)
    assert str(caught.value) == "\n".join(problems(root, **options))
    return str(caught.value)


# -- tasks ---------------------------------------------------------------------------


def test_every_law(root):
    laws.check_task_source(lambda seed: make(root, Context(seed=seed), shots=[1, 3]))


def test_another_process_draws_the_same_tasks(root):
    laws.check_processes(laws.Drawn(make(root), "test", range(20)))


def test_tasks_are_rows_of_the_files_by_the_class_in_their_keys(root):
    source = make(root, normalize="none")
    start = 0
    for split in SPLITS:
        file = entries(split)
        for task in range(50):
            told, batch = source.describe_task(split, task), source.batch(split, [task])
            rows = np.array(told["query"]) - start
            expected = torch.from_numpy(file["embeddings"][rows.ravel()])
            assert torch.equal(batch.query_x[0], expected)
            for name, mine in zip(told["classes"], rows, strict=True):
                assert all(file["keys"][row].split("-")[1] == name for row in mine)
        start += len(file["keys"])


def test_what_it_says_of_itself(root):
    source = make(root)
    assert source.summary() == {
        "name": "LEO embeddings, miniImageNet/center",
        **{split: f"{count} classes" for split, count in CLASSES.items()},
    }
    assert source.group_names == ()
    assert get("dataset", "leo_embeddings").groups is False
    assert "not commercial" in source.licence


def test_rows_have_unit_length_unless_they_shall_not(root):
    assert torch.allclose(make(root).batch("val", range(9)).query_x.norm(dim=-1), torch.ones(9, 25))
    raw = make(root, normalize="none").batch("val", range(9)).query_x
    assert torch.allclose(
        raw / raw.norm(dim=-1, keepdim=True), make(root).batch("val", range(9)).query_x, atol=1e-6
    )


def test_precision_is_the_run_s(root):
    batch = make(root, Context(dtype="float64")).batch("train", [0])
    assert batch.support_x.dtype == torch.float64
    assert torch.allclose(batch.support_x.norm(dim=-1), torch.ones(1, 5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ({}, "miniImageNet/center"),
        ({"crop": "multiview"}, "miniImageNet/multiview"),
        ({"variant": "tiered"}, "tieredImageNet/center"),
    ],
)
def test_each_variant_and_crop_has_its_folder(tmp_path, options, folder):
    root = write(tmp_path, **options)
    assert folder_of(root, **options) == tmp_path / folder
    assert make(root, **options).summary()["name"].endswith(folder)
    assert make(tmp_path / folder, **options).fingerprint == make(root, **options).fingerprint


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": lambda keys: keys.tolist()},
        {"keys": lambda keys: keys.astype("S")},
        {"keys": lambda keys: keys.astype("U")},
        {"labels": lambda labels: labels.tolist()},
        {"labels": lambda labels: [f"label {label}" for label in labels]},
        {"labels": lambda labels: np.eye(CLASSES["val"], dtype=np.float32)[labels]},
        {"embeddings": lambda values: values.astype(">f4")},
        {"embeddings": lambda values: values.astype("f8")},
    ],
    ids=["list", "bytes", "text", "labels' list", "names", "one-hot", "big endian", "doubles"],
)
def test_other_ways_to_write_the_same(root, changed):
    plain = make(root).fingerprint
    change(root, **{name: convert(entries("val")[name]) for name, convert in changed.items()})
    assert make(root).fingerprint == plain


def test_a_file_of_another_content_has_another_fingerprint(root):
    before = make(root).fingerprint
    change(root, "test", embeddings=entries("test")["embeddings"] + np.float32(0.01))
    assert make(root).fingerprint != before


# -- what is wrong -------------------------------------------------------------------


def test_absent_files_are_named_with_how_to_place_them(tmp_path):
    root = write(tmp_path / "here", splits=["val"])
    message = refusal(root)
    assert message.count("\n") == 0
    for part in (
        f"{root}/miniImageNet/center lacks train_embeddings.pkl, test_embeddings.pkl",
        "get http://storage.googleapis.com/leo-embeddings/embeddings.zip, unzip it",
        "set dir to the folder that then has miniImageNet/center",
    ):
        assert part in message


def test_a_folder_that_is_not_there(tmp_path):
    assert "lacks train_embeddings.pkl, val_emb" in refusal(tmp_path / "nowhere")


DIFFERENT = entries("val")
N = len(DIFFERENT["keys"])
TWICE = np.where(np.arange(N) == 3, DIFFERENT["keys"][4], DIFFERENT["keys"])
MIXED = np.where(np.arange(N) == 0, (DIFFERENT["labels"] + 1) % 3, DIFFERENT["labels"])
OBJECTS = DIFFERENT["embeddings"].astype(object)

WRONG = {
    "empty": ({"raw": b""}, "it is empty"),
    "truncated": ({"raw": pickled(DIFFERENT)[:-500]}, "it is truncated"),
    "rubbish behind": ({"raw": pickled(DIFFERENT) + b"\n\n"}, "2 bytes follow its end"),
    "no pickle": ({"raw": b"<html>not found</html>"}, "it begins with b'<html>no'"),
    "a list": ({"raw": b"\x80\x02]."}, "it holds a list"),
    "no keys": ({"keys": None}, "it lacks keys, it holds 'embeddings', 'labels'"),
    "other names": ({"keys": None, "labels": None, "names": [1]}, "it lacks keys and labels"),
    "fewer keys": ({"keys": DIFFERENT["keys"][:-1]}, "120 rows of embeddings, but 119 keys"),
    "more labels": ({"labels": [1] * 121}, "120 rows of embeddings, but 121 labels"),
    "no list": ({"labels": 3}, "labels are a int, not a list or an array"),
    "a text": ({"keys": "abc"}, "keys are a bytes, not a list or an array"),
    "keys of numbers": ({"keys": list(range(N))}, "keys[0] is a int"),
    "keys of lists": ({"keys": [[1]] * N}, "keys[0] is a list"),
    "labels of lists": ({"labels": [[1]] * N}, "labels[0] is a list"),
    "keys without a class": (
        {"keys": [f"image {row}" for row in range(N)]},
        "keys[0] is 'image 0', not SPLIT-CLASS-IMAGE",
    ),
    "keys with an empty class": ({"keys": [f"a--{row}" for row in range(N)]}, "keys[0] is 'a--0'"),
    "a key twice": ({"keys": TWICE}, "1 keys are there twice"),
    "labels that disagree": ({"labels": MIXED}, "keys and labels contradict each other: class"),
    "flat": ({"embeddings": DIFFERENT["embeddings"].ravel()}, "not floats [n, p]"),
    "whole numbers": ({"embeddings": DIFFERENT["embeddings"].astype(int)}, "of type int64"),
    "a table of objects": (
        {"embeddings": OBJECTS},
        "an array of objects of shape [120, 12], with 1440 objects",
    ),
    "a list of rows": ({"embeddings": [1.5] * N}, "embeddings are a list, not floats"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_such_file_is_one_clear_line(root, changed, message):
    path = change(root, **changed)
    line = refusal(root)
    assert line.startswith(f"leo_embeddings: {path}: ")
    assert message in line
    assert "expected a pickled dict of embeddings [n, p], labels [n] and keys [n]" in line
    assert line.endswith("unzip the archive again")
    assert line.isprintable()


def test_rows_of_another_width(root):
    change(root, "test", embeddings=entries("test", width=13)["embeddings"])
    assert "the rows differ in width (train 12, val 12, test 13)" in refusal(root)


def test_classes_of_two_splits(root):
    path = change(root, "test", **entries("val"))
    line = refusal(root)
    assert f"val_embeddings.pkl and {path} share 6 classes, first 'n00001000', " in line


def test_classes_that_are_too_small(root):
    message = refusal(root, queries=ROWS)
    assert message.startswith("split 'train': class 'n0")
    assert f"has {ROWS} rows; needs {ROWS + 1} (1 support + {ROWS} query)" in message
    make(root, queries=ROWS, too_few="replace")


def test_everything_wrong_is_told_at_once(root):
    (folder_of(root) / "train_embeddings.pkl").unlink()
    change(root, "val", raw=b"")
    change(root, "test", keys=None)
    lines = problems(root)
    assert [line.split(": ")[1].split()[0].split("/")[-1] for line in lines] == [
        "center",
        "val_embeddings.pkl",
        "test_embeddings.pkl",
    ]
    assert problems(write(root)) == []


def with_rows(split: str, value: float, *rows: int) -> np.ndarray:
    values = entries(split)["embeddings"]
    values[list(rows), 5] = value
    return values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("normalize", ["l2", "none"])
def test_rows_that_are_not_finite_are_named(root, value, normalize):
    path = change(root, "val", embeddings=with_rows("val", value, 3, 9))
    other = change(root, "test", embeddings=with_rows("test", value, 0))
    with pytest.raises(DataError) as caught:
        make(root, normalize=normalize)
    one, two = str(caught.value).split("\n")
    assert one.startswith(f"leo_embeddings: {path}: 2 rows hold NaN, infinite or too large ")
    assert "first 3, 9; expected finite ones" in one
    assert two.startswith(f"leo_embeddings: {other}: 1 rows hold NaN")


def test_numbers_too_large_for_the_run_s_precision(root):
    large = entries("val")["embeddings"].astype(np.float64)
    large[7, 0] = 1e300
    change(root, "val", embeddings=large)
    with pytest.raises(DataError, match="1 rows hold NaN, infinite or too large numbers, first 7"):
        make(root)


def test_rows_of_zeros_have_no_direction(root):
    values = entries("val")["embeddings"]
    values[[1, 2, 3, 5, 8, 13]] = 0
    change(root, "val", embeddings=values)
    with pytest.raises(DataError, match=r"6 rows are all zeros, first 1, 2, 3, 5, 8, \.\.\.: they"):
        make(root)
    make(root, normalize="none")


def test_constant_columns_are_reported_not_refused(root):
    lines: list[str] = []
    make(root, Context(report=lines.append))
    assert not lines
    for split in SPLITS:
        values = entries(split)["embeddings"]
        values[:, 4] = 0.25
        change(root, split, embeddings=values)
    make(root, Context(report=lines.append))
    assert lines == [
        "leo_embeddings: 1 of 12 columns are constant, first 4: they say nothing of a class"
    ]


# -- options and recipes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "tiered", "crop": "multiview"}, "released for variant: mini alone"),
        ({"variant": "full"}, "variant"),
        ({"shots": [3, 1]}, r"the range \[3, 1\] is \[high, low\]"),
        ({"ways": 1}, "ways"),
        ({"shorts": 1}, "shorts"),
    ],
)
def test_options_that_cannot_hold_are_refused(root, options, message):
    with pytest.raises(RecipeError, match=message):
        make(root, **options)


RECIPE = """
data: {use: leo_embeddings, queries: 5}
inner: {use: ls}
"""


def test_a_recipe_finds_the_archive_in_the_data_folder(tmp_path, monkeypatch):
    write(tmp_path / "data" / "embeddings")
    recipe = tmp_path / "own.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.setenv("METAFORGE_DATA", str(tmp_path / "data"))
    assert load(recipe).recipe.data.options["dir"] == str(tmp_path / "data" / "embeddings")
    monkeypatch.delenv("METAFORGE_DATA")
    with pytest.raises(RecipeError, match=r"data.dir: \$METAFORGE_DATA is not set") as caught:
        load(recipe)
    assert caught.value.exit_code == 3


def test_a_relative_folder_starts_at_the_recipe(tmp_path, monkeypatch):
    write(tmp_path / "mine")
    recipe = tmp_path / "own.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.chdir("/")
    recipe.write_text(RECIPE.replace("queries: 5", "queries: 5, dir: mine"))
    load(recipe)
    recipe.write_text(RECIPE.replace("queries: 5", "queries: 5, dir: yours"))
    with pytest.raises(RecipeError, match=f"{tmp_path}/yours/miniImageNet/center lacks") as caught:
        load(recipe)
    assert caught.value.exit_code == 3


def test_the_check_imports_no_torch(tmp_path):
    write(tmp_path / "mine")
    recipe = tmp_path / "own.yaml"
    recipe.write_text(RECIPE.replace("queries: 5", "queries: 5, dir: mine"))
    code = (
        "import sys; from metaforge.cli import main; code = main(sys.argv[1:]); "
        "print('torch' in sys.modules, 'numpy' in sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", recipe],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False True"


def test_a_run_from_the_files_to_results(tmp_path):
    root = write(tmp_path / "mine")
    results = metaforge.run(
        {
            "data": {"use": "leo_embeddings", "dir": str(root), "queries": 5},
            "inner": {"use": "ls", "hidden": 8},
            "bank": {"size": 20},
            "meta_train": {"steps": 3, "batch": 2},
            "condition": {"steps": 2, "batch": 2, "top_m": 5},
            "evaluate": {"targets": 30},
            "output": str(tmp_path / "runs"),
        }
    )
    assert results["unconditional"]["n"] == results["difference"]["n"] == 30


def test_its_facts_are_those_of_the_tasks(root):
    told = facts(LeoEmbeddingsOptions(dir=root, **SMALL), Context())
    assert told.shape == make(root).shape.input_shape == (told.width,)
    assert {split: len(names) for split, names in told.classes.items()} == CLASSES
    change(root, raw=b"")
    with pytest.raises(DataError):
        facts(LeoEmbeddingsOptions(dir=root, **SMALL), Context())


def test_a_model_for_images_is_refused_before_the_run(root):
    data = {"use": "leo_embeddings", "dir": str(root), **SMALL}
    with pytest.raises(RecipeError, match=r"model conv4 needs images.*\[12\]"):
        load({"name": "images", "data": data, "inner": {"use": "maml", "model": {"use": "conv4"}}})
