"""Recipes on images: what cannot serve samples of the data's shape is found before the run."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import metaforge
from metaforge.components import load_attribute
from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.registry import get
from tests.small import SMALL

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(30), 6)
SHAPES = {
    "vectors": (LABELS.size, 12),
    "tiny": (LABELS.size, 8, 40),
    "images": (LABELS.size, 16, 16),
    "others": (LABELS.size, 16, 16),
    "colours": (LABELS.size, 17, 16, 3),
}
CONV4 = {"use": "maml", "model": {"use": "conv4", "filters": 2}, "steps": 1, "lr": 0.1}
RESNET = {**CONV4, "model": {"use": "resnet12", "widths": [2, 2, 2, 2, 2]}}
LEO = {"use": "leo"}
IMAGES = {"use": "glyphs", "input": "images"}


def recipe(data: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, "data": data, "inner": inner}


def file(tmp_path, name: str) -> dict[str, Any]:
    path = tmp_path / f"{name}.npz"
    np.savez(path, X=RNG.normal(size=SHAPES[name]).astype(np.float32), y=LABELS)
    return {"use": "arrays", "path": str(path), "ways": 3, "queries": 2}


def mixed(tmp_path, **more) -> dict[str, Any]:
    files = {name: file(tmp_path, name)["path"] for name in ("images", "others")}
    sources = {name: {"use": "arrays", "path": path} for name, path in files.items()}
    return {"use": "mixture", "sources": sources, "ways": 3, "queries": 2, **more}


REFUSED = {
    "conv4 on vectors": ("vectors", CONV4, "inner.model", r"model conv4 needs images.*\[12\]"),
    "conv4 on tiny images": ("tiny", CONV4, "inner.model", "at least 16 x 16.*found 8 x 40"),
    "resnet12 on images": ("images", RESNET, "inner.model", "halves images 5 times.*32 x 32"),
    "leo on images": ("colours", LEO, "inner", r"leo takes features.*\[3, 17, 16\]"),
    "conv4 in another algorithm": (
        "vectors",
        {**CONV4, "use": "unrolled"},
        "inner.model",
        "model conv4 needs images",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_serve_the_samples_is_found_before_the_run(tmp_path, case):
    name, inner, path, words = REFUSED[case]
    with pytest.raises(RecipeError, match=words) as caught:
        load(recipe(file(tmp_path, name), inner))
    found = {problem.path for problem in caught.value.problems if re.search(words, problem.message)}
    assert found == {path}


@pytest.mark.parametrize(
    ("data", "inner", "words"),
    [
        ({"use": "glyphs"}, CONV4, r"needs images.*\[64\].*input: images"),
        (IMAGES, LEO, r"takes features.*\[1, 28, 28\].*input: features"),
        ({"use": "sinusoids"}, CONV4, r"needs images.*\[1\]"),
    ],
    ids=["features of glyphs", "images of glyphs", "curves"],
)
def test_data_of_the_project_tell_their_shape(data, inner, words):
    with pytest.raises(RecipeError, match=words):
        load(recipe(data, inner))


def test_a_projection_makes_features_of_images(tmp_path):
    with pytest.raises(RecipeError, match=r"needs images.*\[4\]"):
        load(recipe(mixed(tmp_path, width=4), CONV4))
    load(recipe(mixed(tmp_path, width=4), LEO))
    with pytest.raises(RecipeError, match=r"takes features.*\[1, 16, 16\]"):
        load(recipe(mixed(tmp_path, projection="none"), LEO))
    load(recipe(mixed(tmp_path, projection="none"), CONV4))


@pytest.mark.parametrize(
    ("name", "inner"), [("images", CONV4), ("colours", CONV4), ("vectors", LEO)], ids=str
)
def test_what_serves_the_samples_is_valid(tmp_path, name, inner):
    assert load(recipe(file(tmp_path, name), inner)).problems() == []


def test_data_that_cannot_be_read_are_told_once(tmp_path):
    missing = {"use": "arrays", "path": str(tmp_path / "none.npz")}
    with pytest.raises(RecipeError) as caught:
        load(recipe(missing, CONV4))
    (problem,) = caught.value.problems
    assert "no such file" in problem.message


def test_the_shape_told_is_the_shape_drawn(tmp_path):
    for name in SHAPES:
        given = file(tmp_path, name)
        resolved = load(recipe(given, {"use": "ls"}))
        (data,) = (choice for choice in resolved.chosen if choice.path == ("data",))
        told = load_attribute(get("dataset", "arrays").facts)(data.options, resolved.context())
        options = {key: value for key, value in given.items() if key != "use"}
        assert told.shape == metaforge.create("dataset", "arrays", **options).shape.input_shape


def test_it_needs_no_torch(tmp_path):
    given = recipe(file(tmp_path, "vectors"), CONV4)
    code = (
        "import sys\nfrom metaforge.recipe import load\n"
        f"try:\n    load({given!r})\nexcept Exception as error:\n    print(error)\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs images" in ran.stdout
    assert ran.stdout.strip().endswith("False")
