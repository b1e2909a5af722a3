"""What docs/use.md shows is run as it stands."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import metaforge
from metaforge.cli import main
from tests.learner.runs import WIDTH

PAGE = (Path(__file__).parents[2] / "docs" / "use.md").read_text(encoding="utf-8")
IMAGES = np.random.default_rng(0).integers(0, 256, (8, 28, 28)).astype("uint8")
LABELS = list("abababab")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_commands(made, tmp_path, monkeypatch):
    run, _ = made("ls")
    shutil.copytree(run, tmp_path / "runs" / "mine")
    for folder in ("letters", "more"):
        for i, (pixels, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
            (tmp_path / folder / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / folder / label / f"{i}.png")
    with (tmp_path / "support.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", *(f"f{i}" for i in range(WIDTH))])
        writer.writerows([name, *row] for name, row in zip("abcabc", np.eye(WIDTH), strict=True))
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 6
    for line in lines:
        verb, *words = shlex.split(line, comments=True)[1:]
        assert main([verb, *words]) == 0, line
    for made_of_it in ("model/model.json", "predictions.csv", "bundle/bundle.json", "model.pt"):
        assert (tmp_path / made_of_it).exists()


def test_its_python(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    features = metaforge.load("glyphs").parts.source.preprocess()(IMAGES)
    names = {"images": IMAGES, "labels": LABELS, "others": IMAGES, "x": features}
    import torch

    first, second = blocks("python")
    exec(first.replace("module(x)", "module(torch.from_numpy(x))"), names | {"torch": torch})
    exec(second, names)
    assert (tmp_path / "saved" / "model.json").exists()
