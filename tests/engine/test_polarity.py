"""Images inverted, or left, by their own borders."""

from __future__ import annotations

import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.polarity import border, ink_is_one


def test_the_border_is_each_outer_pixel_once():
    image = torch.arange(20.0).view(1, 1, 4, 5)
    expected = [0, 1, 2, 3, 4, 5, 9, 10, 14, 15, 16, 17, 18, 19]
    assert sorted(border(image)[0].tolist()) == expected


def test_bright_ground_alone_is_inverted_each_image_by_its_own():
    dark, bright = torch.zeros(2, 1, 6, 6)
    dark[0, 2:4, 2:4] = 1
    bright = 1 - dark
    bright[0, 0, 0] = 0.5  # a speck on the border
    both = torch.stack([dark, bright])
    found = ink_is_one(both, "auto")
    assert torch.equal(found[0], dark)
    assert torch.equal(found[1], 1 - bright)
    assert torch.equal(ink_is_one(both.flip(0), "auto"), found.flip(0))
    assert torch.equal(ink_is_one(both, True), 1 - both)
    assert torch.equal(ink_is_one(both, False), both)


def test_glyph_conv_sees_dark_ink_on_paper_as_it_sees_its_own_letters(tmp_path):
    small = {"per_letter": 4, "per_face": 1, "shots": 1, "queries": 1}
    context = Context(cache_dir=tmp_path)
    source = metaforge.create(
        "dataset", "glyphs", context=context, backbone=None, input="images", **small
    )
    letters = source.labelled_images("test").inputs(torch.arange(200))
    assert border(letters).mean(1).max() < 0.4  # none of them is inverted
    auto, never = (metaforge.create("backbone", "glyph_conv", invert=i) for i in ("auto", False))
    assert torch.equal(auto.features(letters), never.features(letters))
    photos = 1 - letters
    torch.testing.assert_close(auto.features(photos), never.features(letters), rtol=1e-4, atol=1e-4)
    assert (never.features(photos) - never.features(letters)).abs().mean() > 0.1
    assert auto.fingerprint != never.fingerprint


@pytest.mark.parametrize("invert", ["auto", True, False], ids=str)
def test_features_under_every_option_are_an_image_s_own(invert):
    made = metaforge.create("backbone", "glyph_conv", invert=invert)
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([made.features(image[None]) for image in images])
    torch.testing.assert_close(alone, made.features(images), rtol=1e-4, atol=1e-4)
