"""The task source: the laws, the cache, and what a task shows."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.registry import get
from metaforge.testing import datasets as laws
from metaforge.testing.datasets import Drawn
from metaforge_glyphs import images
from metaforge_glyphs.catalogue import catalogue
from metaforge_glyphs.options import GlyphsOptions
from tests.glyphs.conftest import SMALL


def test_the_laws_hold(make, source):
    laws.check_task_source(make, tasks=150, sample_groups=source.images.sample_groups)


def test_the_law_of_sample_groups_can_fail(source):
    everywhere = np.zeros(len(source.images), int)
    with pytest.raises(AssertionError, match="law of sample groups"):
        laws.check_sample_groups(Drawn(source, "test", range(5)), everywhere)


def test_another_process_draws_the_same_tasks(source):
    laws.check_processes(Drawn(source, "test", range(20)))


def test_kinds_are_the_groups_and_come_in_their_shares(make):
    assert get("dataset", "glyphs").groups is True
    source = make(kinds={"letters": 1.0, "typefaces": 3.0})
    assert source.group_names == ("letters", "typefaces")
    share = source.groups("train", range(4000)).float().mean().item()
    assert share == pytest.approx(0.75, abs=0.03)
    assert make(kinds={"typefaces": 0}).group_names in ((), ("letters",))


def test_features_are_unit_vectors_of_the_images_that_images_shows(make):
    as_features, as_images = make(), make(input="images")
    assert as_features.shape.input_shape == (64,)
    assert as_images.shape.input_shape == (1, 28, 28)
    assert not as_features.has_features
    assert as_images.has_features
    batch = as_images.batch("test", range(4))
    assert 0 <= batch.support_x.min() < batch.support_x.max() <= 1
    features = as_images.batch("test", range(4), "features").support_x
    assert torch.equal(features, as_features.batch("test", range(4)).support_x)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(4, 5))
    backbone = metaforge.create("backbone", "glyph_conv")
    own = backbone.features(batch.support_x.flatten(0, 1))
    own = torch.nn.functional.normalize(own, dim=-1).view_as(features)
    torch.testing.assert_close(features, own, rtol=1e-4, atol=1e-5)


def test_normalize_none_leaves_features_as_they_are(make):
    raw, unit = (make(normalize=how).batch("val", range(3)).query_x for how in ("none", "l2"))
    assert (raw.norm(dim=-1) - 1).abs().max() > 0.1
    torch.testing.assert_close(raw / raw.norm(dim=-1, keepdim=True), unit)


def test_without_a_backbone_everyone_sees_the_images(make):
    source = make(input="images", backbone=None)
    assert not source.has_features
    batch = source.batch("test", range(2), "features")
    assert batch.support_x.shape == (2, 5, 1, 28, 28)


def test_a_task_is_described(source):
    for task in range(6):
        told = source.describe_task("test", task)
        names = told["classes"]
        assert told["pool"] == told["group"] in ("letters", "typefaces")
        if told["pool"] == "letters":
            assert len({name.split()[0] for name in names}) == 1  # one script
        else:
            assert all(name.endswith("(Greek)") for name in names)


def test_the_header_names_classes_and_scripts(source):
    told = source.summary()
    assert told["test"].startswith("letters 397, typefaces 5 classes (Greek, ")
    assert told["train"].endswith("(Latin, Cyrillic, Canadian syllabics, Arabic)")
    assert "Bitstream Vera" in source.licence
    assert "STIX" in source.licence


def test_labelled_images_are_the_splits_own(source):
    labelled = source.labelled_images("train")
    assert set(labelled.labels) == {"letter", "face", "print"}
    fair = labelled.labels["print"] == 1
    assert (labelled.labels["face"][~fair] == -1).all()
    assert (labelled.labels["face"][fair] >= 0).all()
    val = source.labelled_images("val")
    assert not set(labelled.labels["letter"].tolist()) & set(val.labels["letter"].tolist())
    assert labelled.inputs(torch.tensor([0, 1])).shape == (2, 1, 28, 28)
    assert labelled.inputs(torch.arange(50)).max() <= 1
    drawn = source.describe_task("train", 0)
    names = {"letters": "letter", "typefaces": "face"}[drawn["pool"]]
    told = {name.partition(" (")[0] for name in drawn["classes"]}
    assert told <= set(labelled.names[names])


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(DataError, match=r"glyphs: ways is 9"):
        metaforge.create("dataset", "glyphs", ways=9)
    with pytest.raises(RecipeError, match="kinds"):
        metaforge.create("dataset", "glyphs", kinds={"letters": -1})


# -- cache ---------------------------------------------------------------------------

TINY = GlyphsOptions(per_letter=2, per_face=1)


class Calls:
    """Counts the calls of a function."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.function(*args, **kwargs)


@pytest.fixture
def drawing(monkeypatch) -> Calls:
    """Stands for the renderer, and counts."""

    def draw(codes, faces, ks, *, seed, distortion):
        values = (codes + 7 * faces + 13 * ks + seed) % 251
        return np.broadcast_to(values[:, None, None], (len(codes), 28, 28)).astype(np.uint8)

    calls = Calls(draw)
    monkeypatch.setattr(images, "render", calls)
    return calls


def loaded(folder: Path, lines: list[str] | None = None, options=TINY) -> np.ndarray:
    report = (lambda line: None) if lines is None else lines.append
    return images.load_images(options, catalogue(options), Context(cache_dir=folder, report=report))


def test_images_are_drawn_once(drawing, tmp_path):
    lines: list[str] = []
    first = loaded(tmp_path, lines)
    once = drawing.count
    assert once
    assert not lines
    again = loaded(tmp_path, lines)
    assert drawing.count == once
    assert np.array_equal(first, again)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "other"])
def test_a_damaged_cache_is_drawn_anew(drawing, tmp_path, damage):
    first, lines = loaded(tmp_path), []
    once = drawing.count
    (path,) = (tmp_path / "glyphs").iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
    elif damage == "emptied":
        content = bytearray()
    path.write_bytes(bytes(content))
    if damage == "other":
        np.savez(path, data=first[1:])
    assert np.array_equal(loaded(tmp_path, lines), first)
    assert drawing.count == 2 * once
    assert "is damaged, making it anew" in lines[0]
    loaded(tmp_path)
    assert drawing.count == 2 * once


def test_drawing_shows_how_far_it_is(drawing, tmp_path):
    seen: list[tuple[str, int]] = []

    @contextmanager
    def progress(name, total):
        seen.append((name, total))
        yield lambda done: seen.append(("done", done))

    options = catalogue(TINY)
    images.load_images(TINY, options, Context(cache_dir=tmp_path, progress=progress))
    assert seen[0] == ("glyphs: drawing images (once)", len(options))
    assert sum(done for _, done in seen[1:]) == len(options)


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(drawing, tmp_path):
    blocked, lines = tmp_path / "file", []
    blocked.write_text("no folder")
    assert len(loaded(blocked, lines)) == len(catalogue(TINY))
    assert "not kept for the next run" in lines[-1]


@pytest.mark.parametrize(
    "change",
    [{"image_seed": 1}, {"per_letter": 3}, {"distortion": {"letters": {"noise": 0.1}}}],
    ids=lambda change: next(iter(change)),
)
def test_what_shapes_images_is_in_their_fingerprint(change):
    other = GlyphsOptions(**{"per_letter": 2, "per_face": 1} | change)
    prints = {images.images_fingerprint(some, catalogue(some)) for some in (TINY, other)}
    assert len(prints) == 2


def test_what_does_not_shape_images_keeps_them():
    other = TINY.model_copy(update={"ways": 3, "shots": 2, "within": False})
    assert images.images_fingerprint(TINY, catalogue(TINY)) == images.images_fingerprint(
        other, catalogue(other)
    )


def test_the_renderer_and_the_fonts_are_in_the_fingerprint(monkeypatch):
    before = images.images_fingerprint(TINY, catalogue(TINY))
    for name in ("renderer", "fonts_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(images, name, lambda: "another")
            assert images.images_fingerprint(TINY, catalogue(TINY)) != before


def test_the_sizes_here_can_be_drawn():
    assert GlyphsOptions(**SMALL).per_letter < GlyphsOptions().per_letter
