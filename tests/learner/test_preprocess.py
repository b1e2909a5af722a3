"""What a learner sees of raw samples is what its data set has of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, PluginError
from metaforge.image_files import ImageForm, read_images
from metaforge.preprocess import BrokenSamples, Preprocess

WAYS = {"ways": 3, "shots": 1, "queries": 2}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def features(rng, classes=20, each=6, p=5):
    x = rng.normal(size=(classes * each, p)).astype("float32") * 3 + 1
    return x, np.repeat(np.arange(classes), each)


def stored_and_read(preprocess: Preprocess) -> Preprocess:
    return Preprocess.of(json.loads(json.dumps(preprocess.facts())), preprocess.arrays())


def rows_of(source, task_id=3):
    """Support samples of a task [S, *x], and their row numbers."""
    told = source.describe_task("train", task_id)
    return source.batch("train", [task_id]).support_x[0].numpy(), np.concatenate(told["support"])


@pytest.mark.parametrize("how", ["none", "l2", "standardize"])
def test_of_features(how):
    x, y = features(np.random.default_rng(0))
    source = metaforge.create("dataset", "arrays", x=x, y=y, normalize=how, **WAYS)
    seen, rows = rows_of(source)
    made = stored_and_read(source.preprocess())
    np.testing.assert_array_equal(made(x[rows]), seen)
    if how != "none":
        assert not np.array_equal(replace(made, normalize="none")(x[rows]), seen)


def test_of_images_of_bytes():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (120, 8, 6, 3)).astype("uint8")
    source = metaforge.create("dataset", "arrays", x=x, y=np.repeat(np.arange(20), 6), **WAYS)
    seen, rows = rows_of(source)
    made = stored_and_read(source.preprocess())
    assert made.images == ImageForm(3, 8, 6)
    for given in (x[rows], x[rows].transpose(0, 3, 1, 2), x[rows] / np.float32(255)):
        np.testing.assert_allclose(made(given), seen, rtol=0, atol=1e-7)


def test_of_glyphs():
    source = metaforge.create("dataset", "glyphs", ways=3, shots=1, queries=2, per_letter=8)
    made = stored_and_read(source.preprocess())
    seen, rows = rows_of(source)
    images = source._pixels.numpy()[rows][:, 0]
    for given in (images, images.reshape(len(images), -1), images[:, None] / 255):
        np.testing.assert_allclose(made(given), seen, atol=2e-6)
    np.testing.assert_allclose(made(seen), seen, atol=1e-6)  # features of the same backbone
    with pytest.raises(PluginError, match="not those that made the learner's features"):
        replace(made, backbone_fingerprint="0" * 32)(images)


def test_of_a_mixture_is_its_sources_own():
    x, y = features(np.random.default_rng(0))
    one = {"use": "arrays", "x": x.tolist(), "y": y.tolist()}
    source = metaforge.create(
        "dataset", "mixture", sources={"a": one, "b": one | {"normalize": "l2"}}, width=3, **WAYS
    )
    assert source.preprocess() is None
    for name in "ab":
        part = source.sources[name]
        seen, rows = rows_of(part)
        np.testing.assert_allclose(stored_and_read(part.preprocess())(x[rows]), seen, atol=1e-5)


def test_of_an_embedded_file(tmp_path):
    rng = np.random.default_rng(0)
    backbone = metaforge.create("backbone", "glyph_conv")
    x, y = features(rng, p=64)
    said = {
        "backbone": {"use": "glyph_conv"},
        "fingerprint": backbone.fingerprint,
        "images": {"channels": 1, "height": 28, "width": 28},
    }
    path = tmp_path / "e.npz"
    np.savez(path, X=x, y=y.astype(str), metaforge=np.array(json.dumps(said)))
    source = metaforge.create("dataset", "arrays", path=path, normalize="l2", **WAYS)
    made = source.preprocess()
    assert made.backbone == {"use": "glyph_conv"}
    assert made(rng.integers(0, 255, (2, 28, 28)).astype("uint8")).shape == (2, 64)
    np.savez(path, X=x, y=y.astype(str), metaforge=np.array("{}"))
    with pytest.raises(DataError, match="does not say what made the features"):
        metaforge.create("dataset", "arrays", path=path, **WAYS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((2, 4)), r"expected samples \[n, 5\]"),
        (np.array([["a"]]), "expected numbers"),
        (np.full((2, 5), np.nan), "rows 0, 1"),
        (np.vstack([np.ones(5), np.zeros(5)]), "1 samples are all zeros.*rows 1"),
    ],
)
def test_samples_that_cannot_be_used(given, said):
    with pytest.raises(DataError, match=said):
        Preprocess((5,), normalize="l2")(given)


def test_images_beyond_their_range_are_told_by_row():
    with pytest.raises(BrokenSamples, match=r"beyond \[0, 1\]") as found:
        Preprocess((1, 2, 2), ImageForm(1, 2, 2))(np.array([[[0, 1], [0, 1]], [[0, 9], [0, 0]]]))
    assert found.value.rows == [1]


def test_in_the_contexts_precision():
    assert Preprocess((5,))(np.ones((2, 5)), Context(dtype="float64")).dtype == np.float64


def test_bytes_of_any_size_are_brought_to_the_form_as_files_are(tmp_path):
    form = ImageForm(1, 8, 8)
    preprocess = Preprocess((1, 8, 8), images=form)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 20, 14, 3), dtype=np.uint8)
    files = []
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{number}.png")
        files.append(f"{number}.png")
    wanted = preprocess(read_images(tmp_path, files, form, Context()))
    for given in (pixels, pixels.transpose(0, 3, 1, 2)):
        np.testing.assert_array_equal(preprocess(given), wanted)
    grey = preprocess(rng.integers(0, 256, (2, 9, 9), dtype=np.uint8))
    assert grey.shape == (2, 1, 8, 8)
    with pytest.raises(DataError, match="expected images"):
        preprocess(rng.random((2, 9, 9)))
