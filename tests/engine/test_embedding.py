"""Features of images: kept once, for whatever makes them; images brought to a backbone's form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embedding import (
    block_size,
    embed,
    feature_blocks,
    features_of,
    in_form,
    rows_of,
    views,
)
from metaforge.errors import DataError, PluginError
from metaforge.image_options import FeatureOptions
from metaforge.storage import DiskRows


def form(channels: int, height: int, width: int):
    return SimpleNamespace(channels=channels, height=height, width=width)


class Halves(Backbone):
    """The mean of an image's upper and lower half; counts its calls."""

    width, fingerprint, calls = 2, "halves of the first kind", 0

    def features(self, images):
        self.calls += 1
        return images.flatten(1).unflatten(1, (2, -1)).mean(-1)


@pytest.fixture
def pixels() -> torch.Tensor:
    return (torch.arange(50 * 784) % 251).to(torch.uint8).view(50, 1, 28, 28)


def test_features_are_computed_once_for_each_backbone_and_images(tmp_path, pixels):
    backbone, context = Halves(), Context(cache_dir=tmp_path)
    first = features_of(pixels, "a", backbone, context)
    torch.testing.assert_close(first, (pixels / 255).view(50, 2, 392).mean(-1))
    assert torch.equal(features_of(pixels, "a", backbone, context), first)
    assert backbone.calls == 1
    features_of(pixels, "b", backbone, context)
    assert backbone.calls == 2
    backbone.fingerprint = "halves of the second kind"
    features_of(pixels, "a", backbone, context)
    assert backbone.calls == 3
    backbone.images = form(1, 14, 14)
    features_of(pixels, "a", backbone, context)
    assert backbone.calls == 4


def test_features_of_a_damaged_file_are_made_anew(tmp_path, pixels):
    lines: list[str] = []
    context = Context(cache_dir=tmp_path, report=lines.append)
    first = features_of(pixels, "a", Halves(), context)
    (path,) = (tmp_path / "features").iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    assert torch.equal(features_of(pixels, "a", Halves(), context), first)
    assert "is damaged" in lines[0]


def test_features_that_are_not_finite_are_refused(tmp_path, pixels):
    class Broken(Halves):
        def features(self, images):
            return super().features(images) / (torch.arange(len(images))[:, None] > 1)

    with pytest.raises(DataError, match="not finite, of 2 images"):
        features_of(pixels, "a", Broken(), Context(cache_dir=tmp_path))


def test_a_backbone_that_gives_another_shape_is_named(pixels):
    class Wide(Halves):
        width = 3

    with pytest.raises(PluginError, match=r"Wide: features of shape \[50, 2\], expected \[50, 3\]"):
        embed(Wide(), pixels)


def test_images_on_disk_give_what_images_in_memory_give(tmp_path, pixels):
    np.save(tmp_path / "x.npy", pixels.numpy())
    disk = DiskRows(tmp_path / "x.npy", "digest")
    one = features_of(disk, "a", Halves(), Context(cache_dir=tmp_path / "1"))
    assert torch.equal(one, features_of(pixels, "a", Halves(), Context(cache_dir=tmp_path / "2")))


def test_blocks_that_are_taken_up_again_are_those_of_one_go(pixels):
    backbone = Halves()
    whole = list(feature_blocks(rows_of(pixels), 50, backbone, "cpu", each=8))
    assert [len(block) for block in whole] == [8] * 6 + [2]
    rest = list(feature_blocks(rows_of(pixels), 50, backbone, "cpu", first=24, each=8))
    assert torch.equal(torch.cat(rest), torch.cat(whole[3:]))
    assert list(feature_blocks(rows_of(pixels), 50, backbone, "cpu", first=50)) == []


def test_a_block_is_measured_by_what_the_backbone_sees():
    assert block_size((1, 28, 28), None, "cpu") == 128
    assert block_size((3, 84, 84), form(1, 28, 28), "cpu") == 128
    assert block_size((3, 56, 28), None, "cuda:1") == 1024
    assert block_size((3, 2000, 2000), None, "cpu") == 1


def test_views_show_the_learner_and_the_kernel_what_the_options_say(tmp_path, pixels):
    context = Context(cache_dir=tmp_path)

    def seen(made, **options):
        return views(pixels, "a", made, FeatureOptions.model_validate(options), context)

    named = {"backbone": {"use": "halves"}}
    found = seen(None)
    assert found.x is pixels
    assert found.features is None
    assert found.scale == 1 / 255
    assert found.preprocess["input"].backbone is None
    plain = seen(Halves(), **named, normalize="none").x
    found = seen(Halves(), **named)
    assert torch.equal(found.x, F.normalize(plain, dim=-1))
    assert found.features is None
    assert found.scale is None
    assert found.preprocess["input"].backbone == {"use": "halves"}
    found = seen(Halves(), **named, input="images")
    assert found.x is pixels
    assert torch.equal(found.features, F.normalize(plain, dim=-1))
    assert found.preprocess["features"].backbone_fingerprint == Halves.fingerprint


# -- the form ------------------------------------------------------------------------------


def test_images_in_the_form_asked_for_are_only_scaled(pixels):
    assert torch.equal(in_form(pixels, form(1, 28, 28)), pixels.float() / 255)
    assert torch.equal(in_form(pixels, None), pixels.float() / 255)
    floats = pixels.double() / 255
    assert torch.equal(in_form(floats, form(1, 28, 28)), floats.float())


@pytest.mark.parametrize("size", [(20, 33), (5, 60), (64, 64)], ids=str)
def test_sizes_change_as_an_antialiased_bilinear_filter_has_it(size):
    image = np.random.default_rng(0).integers(0, 256, (41, 37, 3), np.uint8)
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
    found = in_form(torch.from_numpy(image).permute(2, 0, 1)[None], form(3, *size))
    told = (found[0].permute(1, 2, 0) * 255).numpy()
    assert np.abs(told - expected).max() < 1.01  # Pillow rounds to whole numbers, twice


def test_colours_become_grey_and_grey_is_repeated():
    colours = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 3, 6, 6), np.uint8))
    grey = in_form(colours, form(1, 6, 6))
    assert grey.shape == (4, 1, 6, 6)
    as_pillow = [
        np.asarray(Image.fromarray(i.permute(1, 2, 0).numpy()).convert("L")) for i in colours
    ]
    assert np.abs(grey[:, 0].numpy() * 255 - np.stack(as_pillow)).max() < 1.01
    repeated = in_form(grey, form(3, 6, 6))
    assert torch.equal(repeated, grey.expand(-1, 3, -1, -1))


def test_other_channels_are_refused():
    with pytest.raises(DataError, match=r"images of shape \[4, 6, 6\]"):
        in_form(torch.zeros(1, 4, 6, 6), form(3, 6, 6))
