"""``pixels``, ``conv4`` and ``resnet12``: forms, weights that come back, weights of others."""

from __future__ import annotations

import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.embedding import embed
from metaforge.errors import DataError, RecipeError
from metaforge.image_files import ImageForm
from metaforge.plugins import host
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.document import Document
from metaforge.recipe.resolve import Chosen

SMALL = {
    "conv4": {"weights": "none", "size": 32, "filters": 4, "channels": 1},
    "resnet12": {"weights": "none", "size": 20, "widths": [4, 6], "channels": 1},
}


def backbone(name: str, seed: int = 0, **options):
    return metaforge.create("backbone", name, context=Context(seed=seed), **options)


def images(*shape: int) -> torch.Tensor:
    return torch.rand(6, *shape, generator=torch.Generator().manual_seed(0))


def test_pixels_are_the_image_brought_to_a_size():
    made = backbone("pixels", size=14, channels=3)
    assert made.images == ImageForm(3, 14, 14)
    x = images(3, 14, 14)
    assert torch.equal(embed(made, x), x.flatten(1))
    assert embed(made, images(1, 28, 28)).shape == (6, made.width) == (6, 588)
    assert backbone("pixels", size=15).fingerprint != backbone("pixels", size=14).fingerprint


@pytest.mark.parametrize("name", SMALL)
def test_weights_are_drawn_by_the_seed_and_come_back_from_their_file(name, tmp_path):
    state = torch.random.get_rng_state()
    one, again, other = (backbone(name, seed, **SMALL[name]) for seed in (0, 0, 1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert torch.equal(torch.random.get_rng_state(), state)
    one.network.train()(images(*one.images.shape))  # statistics that are not the first ones
    one.save(tmp_path / "own.safetensors", {"name": "own"})
    back = backbone(name, 1, **SMALL[name] | {"weights": tmp_path / "own.safetensors"})
    assert back.fingerprint == one.fingerprint != again.fingerprint
    x = images(*one.images.shape)
    assert torch.equal(back.features(x), one.features(x))
    assert back.features(x).shape == (6, one.width)


def test_widths_are_what_the_docstrings_say():
    assert backbone("conv4", weights="none").width == 64 * 5 * 5
    assert backbone("resnet12", weights="none", widths=(8, 16)).width == 16


@pytest.mark.parametrize("name", SMALL)
def test_weights_that_do_not_fit_are_refused_with_what_to_do(name, tmp_path):
    path = tmp_path / "own.safetensors"
    backbone(name, **SMALL[name]).save(path)
    other = {"conv4": {"filters": 8}, "resnet12": {"widths": [4, 8]}}[name]
    with pytest.raises(DataError, match=r"expected \(8.*and \d+ more; set size, channels"):
        backbone(name, **SMALL[name] | other | {"weights": path})
    with pytest.raises(DataError, match=r"trained on images \[1, (32|20), .*say \[1, 48, 48\]"):
        backbone(name, **SMALL[name] | {"weights": path, "size": 48})
    with pytest.raises(DataError, match="is missing"):
        backbone(name, weights=tmp_path / "none.safetensors")


def test_what_options_cannot_be_is_told():
    with pytest.raises(RecipeError, match="weights: required"):
        backbone("resnet12")
    with pytest.raises(RecipeError, match="size to 16 at least"):
        backbone("resnet12", weights="none", size=15)
    with pytest.raises(RecipeError, match="size"):
        backbone("conv4", weights="none", size=15)


def test_validate_finds_a_missing_file_of_every_backbone_that_reads_one(tmp_path):
    components = {c.name: c for c, _ in host().components() if c.kind == "backbone"}
    given = {"weights": str(tmp_path / "none.safetensors")}
    for name in ("conv4", "resnet12", "glyph_conv", "timm", "torchvision"):
        own = given | ({"model": "resnet18"} if name in ("timm", "torchvision") else {})
        options = components[name].options_model.model_validate(own)
        chosen = Chosen(("backbone",), components[name], options)
        found = component_problems([chosen], Document({}), Context())
        assert any("none.safetensors is no file" in str(problem) for problem in found), name
        assert all(problem.code == 3 for problem in found)
