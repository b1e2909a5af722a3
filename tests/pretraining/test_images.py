"""``metaforge pretrain`` on images of any source: varied, judged on unseen classes, gone on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import metaforge
from metaforge import pretrain_loop
from metaforge.cli import main
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.few_shot import Episodes, accuracy, draw
from metaforge.pretrain_recipe import load
from metaforge.pretraining import pretrain
from metaforge.recipe.find import shipped_dir
from metaforge.records import load_tensors

RECIPE = shipped_dir() / "pretrain_images.yaml"
SMALL = [
    "data.use=arrays", "data.ways=2", "data.shots=1", "data.queries=1", "backbone.channels=1",
    "backbone.size=12", "backbone.widths=[4,6]", "epochs=3", "batch=16", "augment.crop=2",
    "validation={ways: 3, shots: 1, queries: 4, episodes: 30}", "device=cpu", "threads=1",
]  # fmt: skip


@pytest.fixture
def shapes(tmp_path) -> Path:
    """Stripes of 12 x 12: classes are angles, 20 classes of 12 images, noisy."""
    random = np.random.default_rng(0)
    down, across = np.mgrid[:12, :12]
    images = []
    for angle in np.repeat(np.arange(20) * np.pi / 20, 12):
        wave = np.sin(1.5 * (down * np.cos(angle) + across * np.sin(angle)) + random.uniform(0, 6))
        images.append(128 + 70 * wave + 20 * random.normal(size=(12, 12)))
    x = np.clip(images, 0, 255).astype(np.uint8)
    np.savez(tmp_path / "shapes.npz", X=x, y=np.repeat(np.arange(20), 12))
    return tmp_path / "shapes.npz"


def recipe(shapes: Path, out: Path, *more: str):
    return load(RECIPE, [*SMALL, f"data.path={shapes}", f"output={out}", *more]).recipe


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_tensors(path)[0]


def test_a_network_learns_from_images_and_serves_as_a_backbone(shapes, tmp_path):
    out = tmp_path / "w.safetensors"
    widths = [8, 16]
    more = ["epochs=12", "lr=2e-2", "augment={}", "held_out=0.2", f"backbone.widths={widths}"]
    card = pretrain(recipe(shapes, out, *more), Context())
    assert card["held_out"]["class"] > 0.25  # of 13 classes
    assert card["few_shot"]["mean"] > 0.7  # of 3, of classes never seen
    assert card["few_shot"]["ways"] == 3
    assert [point["epoch"] for point in card["curve"]] == list(range(1, 13))
    options = {"channels": 1, "size": 12, "widths": widths}
    back = metaforge.create("backbone", "resnet12", weights=out, **options)
    assert back.fingerprint == card["weights"]
    lines = out.with_suffix(".metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == card["curve"]
    assert json.loads(out.with_suffix(".json").read_text()) == card


def test_the_best_epoch_is_kept_or_the_last(shapes, tmp_path, monkeypatch):
    seen: list[torch.Tensor] = []
    scores = iter([0.5, 0.9, 0.7] * 2)

    def judged(features_of, episodes):
        seen.append(features_of(torch.arange(3)))
        score = next(scores)
        return torch.tensor([score, score], dtype=torch.float64)

    monkeypatch.setattr(pretrain_loop.few_shot, "accuracy", judged)
    for keep, epoch in (("best", 2), ("last", 3)):
        seen.clear()
        out = tmp_path / f"{keep}.safetensors"
        card = pretrain(recipe(shapes, out, f"keep={keep}"), Context())
        assert card["epoch"] == epoch
        assert card["few_shot"]["mean"] == (0.9 if keep == "best" else 0.7)
        options = {"channels": 1, "size": 12, "widths": [4, 6]}
        back = metaforge.create("backbone", "resnet12", weights=out, **options)
        source = metaforge.create("dataset", "arrays", path=shapes, ways=2, queries=1)
        val = source.labelled_images("val").inputs(torch.arange(3))
        torch.testing.assert_close(back.features(val), seen[epoch - 1])


def test_what_was_stopped_goes_on_and_ends_with_the_same_weights(shapes, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole.safetensors", tmp_path / "w.safetensors"
    card = pretrain(recipe(shapes, whole), Context())
    original, calls = pretrain_loop.loss_of, 0

    def stops(*arguments):
        nonlocal calls
        calls += 1
        if calls == 12:  # in the second epoch of three, of 9 steps each
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(pretrain_loop, "loss_of", stops)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe(shapes, out), Context())
    assert not out.exists()
    checkpoint = out.with_name(".w.safetensors.checkpoint")
    assert checkpoint.is_file()
    lines: list[str] = []
    again = pretrain(recipe(shapes, out), Context(report=lines.append))
    assert lines[0] == "going on after epoch 1"
    assert again["weights"] == card["weights"]
    assert again["curve"] == card["curve"]
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_not_gone_on_with(shapes, tmp_path):
    out = tmp_path / "w.safetensors"
    checkpoint = out.with_name(".w.safetensors.checkpoint")
    one = pretrain(recipe(shapes, out), Context())
    lines: list[str] = []
    checkpoint.write_bytes(b"PK cut short")
    again = pretrain(recipe(shapes, out), Context(report=lines.append))
    assert "is damaged" in lines[0]
    assert again["weights"] == one["weights"]
    torch.save({"key": "other"}, checkpoint)
    lines.clear()
    pretrain(recipe(shapes, out), Context(report=lines.append))
    assert "with other settings" in lines[0]


def test_images_are_varied_in_training_alone_each_time_anew(shapes, tmp_path, monkeypatch):
    moved: list[torch.Tensor] = []
    original = pretrain_loop.augmentation.moved

    def watched(images, turns, moves, crop):
        assert torch.is_grad_enabled()
        moved.append(torch.cat([moves.start, moves.mirrored[:, None].long()], 1))
        return original(images, turns, moves, crop)

    monkeypatch.setattr(pretrain_loop.augmentation, "moved", watched)
    pretrain(recipe(shapes, tmp_path / "w.safetensors"), Context())
    assert len(moved) == 3 * (len(torch.cat(moved)) // 3 // 16)
    assert len({tuple(one.flatten().tolist()) for one in moved}) == len(moved)
    drawn = torch.cat(moved)
    assert drawn[:, :2].min() == 0
    assert drawn[:, :2].max() == 4
    assert 0.3 < drawn[:, 2].double().mean() < 0.7
    moved.clear()
    plain = ["augment={}", "epochs=1"]
    pretrain(recipe(shapes, tmp_path / "v.safetensors", *plain), Context())
    assert moved == []


def test_a_crop_larger_than_the_image_is_refused(shapes, tmp_path):
    with pytest.raises(DataError, match=r"augment\.crop is 12"):
        pretrain(recipe(shapes, tmp_path / "w.safetensors", "augment.crop=12"), Context())


def test_the_command_is_stopped_with_a_word(shapes, tmp_path, monkeypatch, capsys):
    def stops(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain_loop, "loss_of", stops)
    words = [*SMALL, f"data.path={shapes}", f"output={tmp_path / 'w.safetensors'}"]
    assert main(["pretrain", "--quiet", str(RECIPE), *words]) == 130
    assert "the same command goes on after its last whole epoch" in capsys.readouterr().err


def test_the_shipped_recipe_is_valid_for_a_folder_of_images(tmp_path):
    random = np.random.default_rng(0)
    for i in range(40):
        folder = tmp_path / "photos" / f"class {i}"
        folder.mkdir(parents=True)
        for j in range(20):
            pixels = random.integers(0, 256, (4, 4), np.uint8)
            Image.fromarray(pixels).save(folder / f"{i} {j}.png")
    loaded = load("pretrain_images", [f"data.path={tmp_path / 'photos'}"]).recipe
    assert loaded.backbone.use == "resnet12"


# -- few-shot accuracy -----------------------------------------------------------------------


def by_hand(features: torch.Tensor, episodes: Episodes) -> list[float]:
    """One query at a time."""
    unit = features / features.norm(dim=1, keepdim=True)
    found = []
    for rows in episodes.rows:
        means = [unit[own[: episodes.shots]].mean(0) for own in rows]
        right = [
            max(range(len(means)), key=lambda c: float(unit[q] @ means[c] / means[c].norm())) == w
            for w, own in enumerate(rows)
            for q in own[episodes.shots :]
        ]
        found.append(sum(right) / len(right))
    return found


def test_accuracy_is_that_of_the_nearest_class_mean():
    labels = torch.arange(60) % 6
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features += labels[:, None] * torch.tensor([0.3, -0.2, 0.1, 0.0])
    episodes = draw(labels, 70, 4, 2, 3, seed=1)
    found = accuracy(lambda rows: features[rows], episodes)
    assert found.tolist() == pytest.approx(by_hand(features, episodes))
    assert accuracy(lambda rows: features[rows] * 0 + 1, episodes).mean() == pytest.approx(0.25)
    other = replace(episodes, shots=3)
    assert found.tolist() != pytest.approx(by_hand(features, other))


def test_episodes_have_distinct_classes_and_images_and_take_what_there_is():
    labels = torch.tensor([0] * 3 + [1] * 9 + [2] * 9 + [3] + [-1] * 5)
    episodes = draw(labels, 50, 5, 1, 15, seed=0)
    assert episodes.told == {"episodes": 50, "ways": 3, "shots": 1, "queries": 2}
    for rows in episodes.rows:
        assert len(rows.flatten().unique()) == rows.numel()
        classes = labels[rows]
        assert (classes == classes[:, :1]).all()
        assert set(classes[:, 0].tolist()) == {0, 1, 2}
    assert torch.equal(draw(labels, 50, 5, 1, 15, seed=0).rows, episodes.rows)
    with pytest.raises(DataError, match="1 classes have more than 3 images"):
        draw(torch.tensor([0] * 9 + [1] * 3), 5, 2, 3, 1, seed=0)
