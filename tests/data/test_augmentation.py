"""Images turned, cropped and mirrored: against one image at a time, and by index."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from metaforge import augmentation
from metaforge.augmentation import Moves, draw, moved
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_options import Augment
from metaforge.pooled import PooledTasks
from metaforge.testing import datasets as laws
from metaforge.testing.datasets import Drawn
from metaforge.turned import told, turned_pools
from metaforge_arrays.layout import check
from metaforge_arrays.options import ArraysOptions
from metaforge_arrays.source import load
from tests.data.classes import drawers, pool

RNG = np.random.default_rng(0)
CLASSES, ROWS = 24, 8
IMAGES = RNG.integers(1, 256, size=(CLASSES * ROWS, 6, 6), dtype=np.uint8)
LABELS = np.repeat(np.arange(CLASSES), ROWS)
EVERYTHING = {"rotations": "all", "crop": 2, "flip": True}


def options(augment: dict, **more) -> ArraysOptions:
    given = {"x": IMAGES, "y": LABELS, "ways": 4, "shots": 1, "queries": 2, "augment": augment}
    return ArraysOptions(**{**given, **more})


def source(seed: int = 0, augment: dict = EVERYTHING, **more) -> PooledTasks:
    return load(options(augment, **more), Context(seed=seed))


# -- one image at a time -------------------------------------------------------------


def one_by_one(image, turn, start, mirrored, crop):
    """[c, h, w], by PyTorch's own operations."""
    height, width = image.shape[1:]
    padded = F.pad(torch.rot90(image, int(turn), (1, 2)), [crop] * 4)
    down, right = map(int, start)
    window = padded[:, down : down + height, right : right + width]
    return window.flip(2) if mirrored else window


@pytest.mark.parametrize("block", [3, 4096], ids=["in blocks", "at once"])
@pytest.mark.parametrize("crop", [0, 2])
@pytest.mark.parametrize("turning", [False, True], ids=["as it is", "turned"])
@pytest.mark.parametrize("moving", [False, True], ids=["fixed", "moved"])
def test_a_batch_is_moved_as_each_image_alone(monkeypatch, turning, moving, crop, block):
    monkeypatch.setattr(augmentation, "_BLOCK", block)
    n = 40
    images = torch.from_numpy(RNG.integers(1, 256, size=(n, 3, 5, 5), dtype=np.uint8))
    turns = torch.from_numpy(RNG.integers(0, 4, n)) if turning else None
    start = torch.from_numpy(RNG.integers(0, 2 * crop + 1, size=(n, 2)))
    mirrored = torch.from_numpy(RNG.integers(0, 2, n) == 1)
    found = moved(images, turns, Moves(start, mirrored) if moving else None, crop)
    for i in range(n):
        turn = 0 if turns is None else turns[i]
        at = start[i] if moving else (crop, crop)
        expected = one_by_one(images[i], turn, at, moving and mirrored[i], crop)
        assert torch.equal(found[i], expected), i


def test_images_that_are_not_square_are_cropped_and_mirrored():
    images = torch.arange(2 * 4 * 7, dtype=torch.float32).view(2, 1, 4, 7)
    moves = Moves(torch.tensor([[0, 2], [1, 1]]), torch.tensor([True, False]))
    found = moved(images, None, moves, 1)
    for i in range(2):
        expected = one_by_one(images[i], 0, moves.start[i], moves.mirrored[i], 1)
        assert torch.equal(found[i], expected)


def test_crops_are_uniform_and_half_are_mirrored():
    moves = draw(Augment(crop=1, flip=True), 0, "support", np.arange(900), 20)
    counts = torch.bincount(moves.start[:, 0] * 3 + moves.start[:, 1], minlength=9)
    assert (counts / len(moves.start) - 1 / 9).abs().max() < 0.012  # 5 standard errors
    assert abs(moves.mirrored.double().mean() - 0.5) < 0.02
    assert not draw(Augment(crop=1), 0, "support", np.arange(9), 20).mirrored.any()


# -- tasks ---------------------------------------------------------------------------


def test_a_task_is_the_same_in_any_company():
    laws.check_purity(Drawn(source(), "train", range(60)))
    laws.check_seeds(source, ["train", "test"], range(60))


def test_a_specimen_that_moves_by_place_in_the_batch_is_rejected(monkeypatch):
    by_task = augmentation.draw
    monkeypatch.setattr(
        augmentation,
        "draw",
        lambda augment, seed, side, ids, places: by_task(
            augment, seed, side, np.arange(len(ids)), places
        ),
    )
    with pytest.raises(AssertionError, match="law of purity"):
        laws.check_purity(Drawn(source(), "train", range(60)))


def test_samples_of_meta_training_alone_are_moved():
    plain, varied = source(augment={}), source(augment={"crop": 2, "flip": True})
    for split in ("val", "test"):
        one, other = (some.batch(split, range(40)) for some in (plain, varied))
        laws.assert_same(one, other, f"{split} is as it is")
    one, other = (some.batch("train", range(40)) for some in (plain, varied))
    assert torch.equal(one.support_y, other.support_y)
    changed = (one.support_x != other.support_x).flatten(2).any(2)
    assert changed.float().mean() > 0.8
    assert plain.describe_task("train", 3) == varied.describe_task("train", 3)
    assert plain.fingerprint != varied.fingerprint


def test_the_two_sides_of_a_task_are_moved_apart():
    support, query = (draw(Augment(crop=3), 0, s, np.arange(9), 4) for s in ("support", "query"))
    assert not torch.equal(support.start, query.start)


def test_features_for_the_kernel_are_of_the_image_as_it_is():
    features = RNG.normal(size=(len(IMAGES), 3)).astype(np.float32)
    plain = source(augment={}, features=features).batch("train", range(9), "features")
    varied = source(augment={"crop": 2}, features=features).batch("train", range(9), "features")
    laws.assert_same(plain, varied, "features")


# -- turned classes ------------------------------------------------------------------


def test_turned_classes_keep_every_law():
    groups = np.arange(len(IMAGES)) % 4
    words = {
        name: int(groups[row])
        for row in range(len(IMAGES))
        for name in told([row + q * len(IMAGES) for q in range(4)], len(IMAGES))
    }
    # ids are numbers and words: of one kind, so that the law can sort them
    laws.check_sample_groups(
        Drawn(source(augment={"rotations": "all"}, sample_group=groups), "train", range(200)), words
    )
    one = Drawn(source(augment={"rotations": "all"}), "train", range(200))
    for law in (laws.check_labels, laws.check_distinct_classes, laws.check_samples):
        law(one)


def test_a_turned_class_is_its_images_turned():
    one = source(augment={"rotations": "all"}, shots=2)
    batch, seen = one.batch("test", range(60)), set()
    for task in range(60):
        described = one.describe_task("test", task)
        for position, name in enumerate(described["classes"]):
            label, _, angle = name.partition(", turned ")
            for k, sample in enumerate(described["support"][position]):
                row = int(str(sample).partition(",")[0])
                assert LABELS[row] == int(label)
                expected = torch.rot90(torch.from_numpy(IMAGES[row]), int(angle or 0) // 90)
                found = 255 * batch.support_x[task, 2 * position + k, 0]
                assert torch.equal(found.round().to(torch.uint8), expected)
                assert str(sample).endswith(name[len(label) :])
        seen |= {name.partition(", turned ")[2] for name in described["classes"]}
    assert seen == {"", "90", "180", "270"}


def test_turning_multiplies_classes_where_it_is_asked_for():
    counts = {
        which: [len(some[0].members) for some in source(augment=given).sampler.pools.values()]
        for which, given in {
            "none": {},
            "train": {"rotations": "train"},
            "all": {"rotations": "all"},
        }.items()
    }
    train, val, test = counts["none"]
    assert counts["train"] == [4 * train, val, test]
    assert counts["all"] == [4 * train, 4 * val, 4 * test]


def test_groups_go_with_the_classes():
    given = pool(range(4), class_groups=np.array([0, 1, 1, 0]), class_group_names=("a", "b"))
    given = turned_pools({"train": [given]}, 360, "all")["train"][0]
    assert len(given.members) == len(given.class_names) == 16
    assert given.class_groups.tolist() == [0, 1, 1, 0] * 4
    grouped = pool(range(4), sample_groups=drawers())
    again = turned_pools({"train": [grouped]}, 360, "train")["train"][0]
    assert np.array_equal(again.sample_groups[[5, 365, 725, 1085]], np.full(4, drawers()[5]))


def test_more_ways_than_classes_may_be_turned_ones():
    assert "classes have enough rows" in check(options({}, ways=8), Context())[0]
    assert check(options({"rotations": "all"}, ways=8), Context()) == []


# -- what does not fit ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "x", "words"),
    [
        ({"crop": 1}, IMAGES.reshape(len(IMAGES), -1), r"augment is for images.*\[36\]"),
        ({"rotations": "train"}, IMAGES[:, :4], "square images; found 4 x 6"),
        ({"crop": 6}, IMAGES, "augment.crop is 6.*below 6"),
    ],
    ids=["features", "not square", "large crop"],
)
def test_what_cannot_be_varied_so_is_found_before_the_run(given, x, words):
    (problem,) = check(options(given, x=x), Context())
    with pytest.raises(AssertionError):
        assert not problem
    with pytest.raises(DataError, match=words):
        load(options(given, x=x), Context())


def test_features_of_turned_images_are_not_known():
    with pytest.raises(ValueError, match="features are those of images that are not turned"):
        options({"rotations": "train"}, features=IMAGES.reshape(len(IMAGES), -1))
