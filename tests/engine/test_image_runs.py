"""Whole runs on images: a convolutional network, images on disk, turned and cropped."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import metaforge
from tests.small import SMALL

CLASSES, ROWS = 20, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A square in another place for each class, in noise."""
    path = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, size=(CLASSES * ROWS, 20, 20), dtype=np.uint8)
    for row in range(len(x)):
        down, right = divmod(row // ROWS, 5)
        x[row, 5 * down : 5 * down + 5, 4 * right : 4 * right + 4] = 255
    np.savez(path / "squares.npz", X=x, y=np.repeat(np.arange(CLASSES), ROWS))
    return path


def recipe(folder, **data) -> dict[str, Any]:
    given = {"use": "arrays", "path": str(folder / "squares.npz"), "ways": 3, "queries": 3}
    return {
        **SMALL,
        "data": {**given, **data},
        "inner": {"use": "maml", "model": {"use": "conv4", "filters": 4}, "steps": 1, "lr": 0.1},
        "bank": {"size": 40},
        "meta_train": {"steps": 6, "batch": 2, "validate_every": 3, "validation_targets": 4},
        "condition": {"steps": 2, "batch": 2, "top_m": 5},
        "evaluate": {"targets": 6, "controls": ["random_m", "target_only"]},
    }


def run(folder, tmp_path, *changes: str, **data) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = metaforge.run(recipe(folder, **data), f"output={tmp_path}", *changes, quiet=True)
    lines = (tmp_path / found["run_dir"].rpartition("/")[2] / "targets.jsonl").read_text()
    return found, [json.loads(line) for line in lines.splitlines()]


VARIED = {"storage": "disk", "augment": {"rotations": "all", "crop": 2, "flip": True}}


def test_a_run_repeats_its_bits_by_any_number_of_workers(folder, tmp_path):
    runs = [
        run(folder, tmp_path, f"evaluate.workers={workers}", **VARIED)[1] for workers in (1, 2, 1)
    ]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) == 6


def test_where_images_are_kept_changes_no_bit(folder, tmp_path):
    kept, held = (
        run(folder, tmp_path, **{**VARIED, "storage": storage})[1] for storage in ("disk", "memory")
    )
    assert kept == held


def test_samples_that_are_turned_are_told_in_words(folder, tmp_path):
    records = run(folder, tmp_path, **VARIED)[1]
    told = json.dumps(records)
    assert ", turned 90" in told


@pytest.mark.parametrize(
    "inner", [{"use": "r2d2", "hidden": 8}, {"use": "ls", "hidden": 8}], ids=str
)
def test_heads_take_images_as_rows_of_pixels(folder, tmp_path, inner):
    given = recipe(folder) | {"inner": inner}
    found = metaforge.run(given, f"output={tmp_path}", quiet=True)
    assert list(found["task"]["input_shape"]) == [1, 20, 20]
