"""``glyph_conv``: its shipped weights, and weights that do not fit."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.pretrain_recipe import load
from metaforge.pretraining import LabelledImages, nearest_class_mean
from metaforge.weights import missing_weights
from metaforge_glyphs.backbone import SHIPPED
from metaforge_glyphs.catalogue import catalogue
from metaforge_glyphs.images import draw
from metaforge_glyphs.options import GlyphConvOptions, GlyphsOptions
from metaforge_glyphs.plan import KINDS
from metaforge_glyphs.source import labelled

CARD = json.loads(SHIPPED.with_suffix(".json").read_text(encoding="utf-8"))
RECIPE = load("pretrain_glyphs").recipe


def backbone(seed: int = 0, **options):
    return metaforge.create("backbone", "glyph_conv", context=Context(seed=seed), **options)


def images(n: int = 10, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, 28, 28, generator=torch.Generator().manual_seed(seed))


def test_the_shipped_weights_are_small_and_those_of_the_card():
    assert SHIPPED.stat().st_size < 1_000_000
    assert backbone().fingerprint == CARD["weights"]


def test_the_shipped_weights_come_from_the_shipped_recipe(tmp_path):
    """As complete recipes: the card may have been written before an option was there."""
    path = tmp_path / "card.yaml"
    path.write_text(json.dumps(CARD["settings"] | {"output": "weights.safetensors"}))
    from_card, shipped = (
        recipe.model_dump(exclude={"output"}) for recipe in (load(path).recipe, RECIPE)
    )
    assert from_card == shipped


@pytest.fixture(scope="module")
def validation() -> LabelledImages:
    """The validation images of the default options: those that the card's accuracy is on."""
    options = GlyphsOptions()
    whole = catalogue(options)
    rows = np.sort(np.concatenate([whole.rows(kind, "val") for kind in KINDS]))
    columns = {name: getattr(whole, name)[rows] for name in ("kind", "letter", "face", "k")}
    images = replace(whole, **columns)
    return labelled(images, torch.from_numpy(draw(options, images, Context()))[:, None], "val")


def test_the_shipped_weights_have_the_accuracy_of_the_card(validation):
    found = nearest_class_mean(backbone(), validation, RECIPE)
    # Another version of FreeType draws a few pixels otherwise.
    assert found == pytest.approx(CARD["nearest_class_mean"], abs=0.01)
    untrained = nearest_class_mean(backbone(weights="none"), validation, RECIPE)
    assert found["letter"] > untrained["letter"] + 0.2
    assert found["face"] > untrained["face"] + 0.1


def test_a_feature_depends_on_its_own_image_alone():
    shipped, some = backbone(), images()
    together = shipped.features(some)
    assert together.shape == (10, 64)
    assert not together.requires_grad
    for row in range(10):
        alone = shipped.features(some[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(shipped.features(some[:, 0]), together)


def test_features_are_those_of_the_evaluation_mode():
    shipped, some = backbone(), images()
    before = shipped.features(some)
    shipped.network.train()
    assert torch.equal(shipped.features(some), before)


def test_fresh_weights_depend_on_the_seed_alone():
    state = torch.random.get_rng_state()
    one, again, other = (backbone(seed, weights="none") for seed in (0, 0, 1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.isfinite(one.features(images())).all()


def test_saved_weights_come_back(tmp_path):
    made = backbone(3, weights="none", channels=(4, 8, 8), width=6)
    made.save(tmp_path / "own.safetensors")
    back = backbone(weights=tmp_path / "own.safetensors", channels=(4, 8, 8), width=6)
    assert back.fingerprint == made.fingerprint
    assert torch.equal(back.features(images()), made.features(images()))


def test_weights_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"affine.weight is \(64, 576\), expected \(8, 576\)"):
        backbone(width=8)


def test_a_damaged_or_missing_file_is_named(tmp_path):
    path = tmp_path / "cut.safetensors"
    with pytest.raises(DataError, match="is missing"):
        backbone(weights=path)
    path.write_bytes(SHIPPED.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"cut.safetensors: not a whole safetensors file"):
        backbone(weights=path)


def test_the_check_finds_a_missing_file(tmp_path):
    assert missing_weights(GlyphConvOptions(), Context()) == []
    (line,) = missing_weights(GlyphConvOptions(weights=tmp_path / "a"), Context())
    assert "is no file" in line


def test_bad_options_are_refused():
    with pytest.raises(RecipeError, match="channels"):
        backbone(channels=(1, 2))
