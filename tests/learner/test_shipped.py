"""The shipped bundle ``glyphs``: of use at once, and made by its recipe."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge.learner import banks
from metaforge.learner.load import SHIPPED, shipped
from metaforge.records import load_tensors
from metaforge.statistics import paired

DATA = Path(os.environ.get("METAFORGE_DATA", "/nowhere")) / "omniglot28_bits.npz"
#: Alphabets of the scripts that the learner was trained on, in which a letter may be one it knows.
SEEN = ("Latin", "Cyrillic", "Canadian", "Arabic")


def test_it_is_found_by_its_name_and_small():
    assert shipped() == ["glyphs"]
    assert sum(file.stat().st_size for file in (SHIPPED / "glyphs").iterdir()) < 5.2e6
    learner = metaforge.load("glyphs")
    assert learner.shape.outputs == 5
    assert learner.recipe.inner.use == "r2d2"


def test_its_signatures_are_made_again_and_any_number_of_classes_is_served():
    learner, rng = metaforge.load("glyphs"), np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 28, 28)).astype("uint8")
    for labels in ("abcdea", "abcabc", "ababab"):
        model = learner.adapt(images, list(labels), 1)
        assert model.probabilities(images).shape == (6, len(set(labels)))


@pytest.mark.skipif(not DATA.exists(), reason="METAFORGE_DATA has no Omniglot")
def test_on_alphabets_that_it_has_not_seen_it_beats_the_pixels():
    """5 letters of one alphabet, 5 images each; against the nearest mean image. Seen on 100 tasks:
    86.0 % and 58.0 %."""
    file = np.load(DATA)
    ink = np.unpackbits(file["Xbits"], axis=1)[:, :784].reshape(-1, 28, 28)
    of_alphabet = file["class_alphabet"]
    unseen = [i for i, n in enumerate(file["alphabet_names"]) if not any(s in n for s in SEEN)]
    assert len(unseen) == 43
    learner, rng = metaforge.load("glyphs"), np.random.default_rng(0)
    own, pixels = [], []
    for _ in range(20):
        letters = rng.choice(np.flatnonzero(of_alphabet == rng.choice(unseen)), 5, replace=False)
        rows = np.stack([rng.permutation(np.flatnonzero(file["y"] == one))[:15] for one in letters])
        support, query = 255 * ink[rows[:, :5]], 255 * ink[rows[:, 5:]].reshape(50, 28, 28)
        asked = np.repeat(np.arange(5), 10)
        model = learner.adapt(support.reshape(25, 28, 28), np.repeat(np.arange(5), 5), 0)
        own.append((model.predict(query) == asked).mean())
        means = support.reshape(5, 5, 784).mean(1)
        apart = ((query.reshape(50, 1, 784) - means) ** 2).sum(2)
        pixels.append((apart.argmin(1) == asked).mean())
    assert paired(own, pixels)["ci95"][0] > 0.15
    assert np.mean(own) > 0.8


@pytest.mark.slow
def test_its_recipe_makes_it(tmp_path, monkeypatch):
    """theta_hat to 1e-3 of its length, the bank's samples to 1e-5, index tables exactly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    quick = ("evaluate.targets=1", "evaluate.controls=[]", "condition.steps=0")
    run = metaforge.run("glyphs_learner", *quick, quiet=True)["run_dir"]
    made, kept = metaforge.load(run), metaforge.load("glyphs")
    for name, value in kept.start.theta.items():
        error = (made.start.theta[name] - value).norm() / value.norm().clamp(min=1e-6)
        assert error < 1e-3, name
    _, tensors = banks.stored(made.parts.source, range(made.recipe.bank.size))
    own, _ = load_tensors(SHIPPED / "glyphs" / "bank.safetensors")
    assert set(own) == set(tensors)
    for name, value in own.items():
        if value.dtype == torch.float32:
            torch.testing.assert_close(tensors[name], value, atol=1e-5, rtol=0)
        else:
            assert torch.equal(tensors[name], value), name
