"""``metaforge embed``: folders, arrays and data sets to an npz file; stopped and gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import metaforge
from metaforge import embed_file, embed_inputs
from metaforge.cli import main
from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embed_file import write_features
from metaforge.embedding import embed
from metaforge.errors import DataError, PluginError
from metaforge.image_files import ImageForm, read_images

CLASSES = ("ape", "bee", "cow")


@pytest.fixture
def photos(tmp_path) -> Path:
    """Ten images of each of three classes, of several sizes."""
    root, random = tmp_path / "photos", np.random.default_rng(0)
    for name in CLASSES:
        (root / name).mkdir(parents=True)
        for i in range(10):
            pixels = random.integers(0, 256, (12 + i % 3, 14, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def run(*words: object) -> int:
    return main(["embed", *map(str, words)])


def content(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


# -- what is read --------------------------------------------------------------------------


def test_a_folder_comes_to_features_with_classes_and_files(photos, tmp_path, capsys):
    out = tmp_path / "f.npz"
    assert run(photos, "size=8", "channels=3", "--backbone", "pixels", "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["images"] == told["computed"] == 30
    assert told["columns"] == ["files", "y"]
    found = content(out)
    assert set(found) == {"X", "y", "files", "metaforge"}
    assert found["X"].dtype == np.float32
    assert found["y"].tolist() == [name for name in CLASSES for _ in range(10)]
    assert found["files"][0] == "ape/0.png"
    pixels = read_images(photos, found["files"].tolist(), ImageForm(3, 8, 8), Context())
    np.testing.assert_allclose(found["X"], pixels.reshape(30, -1) / 255, atol=1e-6)
    origin = json.loads(str(found["metaforge"][()]))
    assert origin["backbone"] == {"use": "pixels", "size": 8, "channels": 3}
    assert origin["images"] == {"channels": 3, "height": 8, "width": 8}
    assert origin["fingerprint"] == told["fingerprint"] == "pixels 3 x 8 x 8"
    assert list(tmp_path.glob(".*")) == []


def test_the_data_set_arrays_reads_the_file_as_it_is(tmp_path):
    root, random = tmp_path / "photos", np.random.default_rng(0)
    for i in range(60):
        (root / f"class {i % 15}").mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(root / f"class {i % 15}" / f"{i}.png")
    out = tmp_path / "f.npz"
    assert run(root, "size=8", "--backbone", "pixels", "--out", out, "--quiet") == 0
    source = metaforge.create("dataset", "arrays", path=out, ways=2, shots=1, queries=2)
    told, task = source.describe_task("train", 0), source.batch("train", [0])
    name = told["classes"][0]
    row = content(out)["files"].tolist().index(told["support"][0][0])  # samples by their files
    assert content(out)["y"][row] == name
    assert np.array_equal(task.support_x[0, 0].numpy(), content(out)["X"][row])


def test_folders_of_splits_and_images_without_classes(photos, tmp_path):
    for split, name in zip(("train", "val", "test"), CLASSES, strict=True):
        (tmp_path / "splits" / split).mkdir(parents=True)
        (photos / name).rename(tmp_path / "splits" / split / name)
    out = tmp_path / "f.npz"
    assert run(tmp_path / "splits", "--backbone", "pixels", "--out", out, "--quiet") == 0
    assert content(out)["split"].tolist() == ["test"] * 10 + ["train"] * 10 + ["val"] * 10
    alone = tmp_path / "splits" / "train" / "ape"
    assert run(alone, "--backbone", "pixels", "--out", out, "--force", "--quiet") == 0
    assert set(content(out)) == {"X", "files", "metaforge"}


@pytest.mark.parametrize("form", ["npz", "folder"])
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["channels first", "last"])
def test_arrays_of_bytes_and_floats(form, axes, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), np.uint8)
    arrays = {
        "X": pixels.transpose(axes),
        "y": np.repeat([3.0, 1.0], 10),
        "split": np.repeat([0, 2], 10),
        "group": np.repeat(["a", "b"], 10),
    }
    if form == "npz":
        np.savez(tmp_path / "in.npz", **arrays)
        given = tmp_path / "in.npz"
    else:
        given = tmp_path / "in"
        given.mkdir()
        for name, array in arrays.items():
            np.save(given / f"{name}.npy", array)
    out = tmp_path / "f.npz"
    words = ["size=8", "channels=3", "--backbone", "pixels", "--quiet", "--out", out]
    assert run(given, *words) == 0
    found = content(out)
    assert np.array_equal(found["X"], torch.from_numpy(pixels).float().div(255).flatten(1).numpy())
    assert found["y"].tolist() == ["3"] * 10 + ["1"] * 10
    assert found["split"].tolist() == ["train"] * 10 + ["test"] * 10
    assert found["group"].tolist() == ["a"] * 10 + ["b"] * 10
    np.savez(tmp_path / "floats.npz", images=pixels.astype(np.float64) / 255)
    assert run(tmp_path / "floats.npz", *words, "--force") == 0
    np.testing.assert_allclose(content(out)["X"], found["X"], atol=1e-7)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.zeros((4, 5))}, r"holds X \[4, 5\]; expected images"),
        ({"X": np.full((4, 5, 5), 255.0)}, "4 images of X hold numbers beyond"),
        ({"X": np.full((4, 5, 5), np.nan)}, "4 images of X hold numbers beyond"),
        ({"X": np.zeros((4, 5, 5), np.int64)}, "has dtype int64; expected bytes"),
        ({"X": np.zeros((0, 5, 5))}, "no image in it"),
        (
            {"X": np.zeros((4, 5, 5)), "y": np.zeros(3), "split": np.array(["x"] * 4)},
            r"(?s)y has shape \[3\], and there are 4.*split holds x; expected train",
        ),
        ({"X": np.zeros((4, 5, 5)), "y": np.full(4, 0.5)}, "numbers that are not whole"),
        ({"X": np.array([{}] * 4)}, "cannot be read as numpy's arrays"),
    ],
    ids=str,
)
def test_arrays_that_are_no_images_are_told(arrays, words, tmp_path):
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(DataError, match=words):
        embed_inputs.of_arrays(tmp_path / "in.npz")


def test_a_data_set_gives_its_images_with_splits_and_groups(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (90, 8, 8), np.uint8)
    y = np.repeat(np.arange(18), 5)
    arrays = {"X": pixels, "y": y, "group": np.arange(18) // 3, "drawer": np.arange(90) // 2}
    np.savez(tmp_path / "in.npz", **arrays)
    words = ["data.group=group", "data.sample_group=drawer", "data.ways=2", "data.queries=2"]
    out = tmp_path / "f.npz"
    options = ["size=8", "--backbone", "pixels", "--quiet", "--out", out]
    assert run("arrays", f"data.path={tmp_path / 'in.npz'}", *words, *options) == 0
    found = content(out)
    assert sorted(set(found) - {"X", "metaforge"}) == ["group", "sample_group", "split", "y"]
    rows = [(np.abs(pixels.reshape(90, 64) / 255 - x).max(1) < 1e-6).argmax() for x in found["X"]]
    assert sorted(rows) == list(range(90))
    assert found["y"].tolist() == y[rows].astype(str).tolist()
    assert found["group"].tolist() == (y[rows] // 3).astype(str).tolist()
    assert found["sample_group"].tolist() == (np.array(rows) // 2).tolist()
    split = dict(zip(found["y"].tolist(), found["split"].tolist(), strict=True))
    assert [split[name] for name in found["y"]] == found["split"].tolist()
    assert set(split.values()) == {"train", "val", "test"}


def test_a_recipe_gives_its_data(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (90, 8, 8), np.uint8)
    np.savez(tmp_path / "in.npz", X=pixels, y=np.repeat(np.arange(18), 5))
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "name: mine\ndata: {use: arrays, path: in.npz, ways: 2, queries: 2, shots: 1}\n"
        "inner: {use: maml, model: {use: conv4}}\n"
    )
    out = tmp_path / "f.npz"
    assert run(recipe, "--backbone", "pixels", "--out", out, "--quiet") == 0
    assert content(out)["X"].shape == (90, 784)


def test_a_data_set_without_images_is_named():
    with pytest.raises(PluginError, match="'sinusoids' shows no images"):
        embed_inputs.of_source(metaforge.create("dataset", "sinusoids"), "sinusoids")


# -- what is wrong is told at once ----------------------------------------------------------


def test_everything_wrong_with_the_words_is_told_before_any_work(tmp_path, photos, capsys):
    (tmp_path / "file").write_text("")
    code = run(
        photos, "sise=8", "weights=none.safetensors", "--backbone", "resnet12", "--out",
        tmp_path / "file" / "f.npz", "--device", "cuda:99",
    )  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    for part in ("sise: unknown key; did you mean 'size'?", "is a file, a folder is needed"):
        assert part in said, said
    assert run(photos, "weights=a.pt", "--backbone", "conv4", "--out", tmp_path / "f.npz") == 3
    assert "a.pt is no file" in capsys.readouterr().err
    assert run("photoss", "--backbone", "pixels", "--out", tmp_path / "f.npz") == 2
    assert "photoss: no such file or folder, and no recipe or data set" in capsys.readouterr().err
    assert run(photos, "data.ways=3", "--backbone", "pixels", "--out", tmp_path / "f.npz") == 2
    assert "which alone have options data.*" in capsys.readouterr().err
    assert run(photos, "--backbone", "pixel", "--out", tmp_path / "f.npz") == 2
    assert "unknown backbone 'pixel'; did you mean 'pixels'?" in capsys.readouterr().err


def test_all_files_that_cannot_be_read_are_listed_and_nothing_is_written(photos, tmp_path, capsys):
    whole = (photos / "cow" / "9.png").read_bytes()
    (photos / "ape" / "3.png").write_bytes(whole[: len(whole) // 2])
    (photos / "cow" / "9.png").write_bytes(whole[: len(whole) // 2])
    assert run(photos, "--backbone", "pixels", "--out", tmp_path / "f.npz", "--quiet") == 3
    said = capsys.readouterr().err
    assert "2 images cannot be read" in said
    assert "ape/3.png" in said
    assert "cow/9.png" in said
    assert not (tmp_path / "f.npz").exists()


def test_torch_is_not_imported_to_tell_what_is_wrong_with_the_words(photos, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom metaforge.embed_request import read\n"
        f"read({str(photos)!r}, ['weights=none'], 'resnet12', Path({str(tmp_path / 'f.npz')!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- the file ------------------------------------------------------------------------------


class Counting(Backbone):
    """The image, and how many it was asked for; stops after ``limit`` of them."""

    width, fingerprint, images = 64, "counting", ImageForm(1, 8, 8)

    def __init__(self, limit: int = 10**9):
        super().__init__()
        self.limit, self.asked = limit, 0

    def features(self, images):
        if self.asked + len(images) > self.limit:
            raise KeyboardInterrupt
        self.asked += len(images)
        return images.flatten(1)


@pytest.fixture
def parts_of_ten(monkeypatch):
    monkeypatch.setattr(embed_file, "_PART", 10)


def write(photos: Path, out: Path, backbone: Backbone, **options):
    inputs = embed_inputs.of_folder(photos, backbone.images, Context())
    return write_features(inputs, backbone, {"use": "own"}, out, Context(), batch=5, **options)


def test_what_was_stopped_goes_on_and_ends_with_the_same_bytes(photos, tmp_path, parts_of_ten):
    whole, out = tmp_path / "whole.npz", tmp_path / "f.npz"
    write(photos, whole, Counting())
    with pytest.raises(KeyboardInterrupt):
        write(photos, out, Counting(limit=25))
    assert not out.exists()
    again = Counting()
    done = write(photos, out, again)
    assert again.asked == done["computed"] == 10
    assert out.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".f.npz*"))


def test_a_part_whose_images_changed_is_made_anew(photos, tmp_path, parts_of_ten):
    out = tmp_path / "f.npz"
    with pytest.raises(KeyboardInterrupt):
        write(photos, out, Counting(limit=25))
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(photos / "ape" / "0.png")
    again = Counting()
    write(photos, out, again)
    assert again.asked == 20
    assert content(out)["X"][0].max() == 0


def test_another_backbone_starts_anew(photos, tmp_path, parts_of_ten):
    with pytest.raises(KeyboardInterrupt):
        write(photos, tmp_path / "f.npz", Counting(limit=25))
    other = Counting()
    other.fingerprint = "other"
    write(photos, tmp_path / "f.npz", other)
    assert other.asked == 30


def test_a_file_of_the_same_features_is_left_and_another_is_not_overwritten(photos, tmp_path):
    out, asked = tmp_path / "f.npz", Counting()
    write(photos, out, asked)
    before = out.stat().st_mtime_ns
    assert write(photos, out, asked)["computed"] == 0
    assert out.stat().st_mtime_ns == before
    other = Counting()
    other.fingerprint = "other"
    with pytest.raises(DataError, match="--force to overwrite"):
        write(photos, out, other)
    assert other.asked == 0
    assert write(photos, out, other, force=True)["computed"] == 30
    out.write_text("mine")
    with pytest.raises(DataError, match="does not hold these features"):
        write(photos, out, asked)
    assert out.read_text() == "mine"


def test_features_that_are_not_finite_are_not_kept(photos, tmp_path):
    class Broken(Counting):
        def features(self, images):
            return super().features(images) / 0

    with pytest.raises(DataError, match="not finite"):
        write(photos, tmp_path / "f.npz", Broken())
    assert not (tmp_path / "f.npz").exists()


def test_the_batch_does_not_matter_where_the_backbone_allows_it(photos, tmp_path):
    found = []
    for batch in (1, 7, 30):
        out = tmp_path / f"{batch}.npz"
        words = ["size=8", "--backbone", "pixels", "--batch", batch, "--out", out, "--quiet"]
        assert run(photos, *words) == 0
        found.append(content(out)["X"])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[1], found[2])


def test_the_features_are_those_of_the_backbone(photos, tmp_path):
    out = tmp_path / "f.npz"
    assert run(photos, "--backbone", "glyph_conv", "--out", out, "--quiet") == 0
    made = metaforge.create("backbone", "glyph_conv")
    files = content(out)["files"].tolist()
    pixels = torch.from_numpy(read_images(photos, files, made.images, Context()))
    torch.testing.assert_close(torch.from_numpy(content(out)["X"]), embed(made, pixels))
