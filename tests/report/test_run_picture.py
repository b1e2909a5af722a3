"""What a run keeps to be shown: chosen targets, recalled tasks, pictures; whole or absent."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import metaforge
from metaforge import run_picture
from metaforge.cli import main
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.picture_file import Picture
from metaforge.pictures import SIDE, as_bytes, is_image, strip
from metaforge.pools import Pool
from metaforge.report import html
from metaforge.task_sizes import TaskSizes
from tests.report.markup import Page
from tests.small import SMALL

#: Few images, which are drawn once for all tests.
FEW = {"per_letter": 12, "per_face": 1}
GLYPHS = {
    **SMALL,
    "data": {"use": "glyphs", "ways": 3, "shots": 1, "queries": 3, **FEW},
    "inner": {"use": "ls", "hidden": 16},
}
ARMS = "evaluate.controls=[random_m]"


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Shared, so that glyphs are drawn once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(cache, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(cache))


def kept(run_dir: str) -> dict:
    text = (Path(run_dir) / "artifacts" / "picture.json").read_text()
    Picture.model_validate_json(text)
    return json.loads(text)


def records(run_dir: str) -> list[dict]:
    lines = (Path(run_dir) / "targets.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_leaves_its_page_and_what_it_shows():
    results = metaforge.run(GLYPHS, ARMS, quiet=True)
    run = Path(results["run_dir"])
    made = (run / "report.html").read_bytes()
    assert Page(made.decode()).faults == []
    assert results["notes"] == json.loads((run / "results.json").read_text())["notes"]
    assert html.write_run(run).read_bytes() == made

    found = kept(results["run_dir"])
    gains = {
        r["task_id"]: r["curves"]["conditional"][-1] - r["unconditional"] for r in records(run)
    }
    by_why = {why: one["task_id"] for one in found["chosen"] for why in one["why"]}
    assert gains[by_why["best"]] == max(gains.values())
    assert gains[by_why["worst"]] == min(gains.values())
    assert gains[by_why["median"]] == sorted(gains.values(), reverse=True)[5]
    for one in found["chosen"]:
        assert one["weights"] == sorted(one["weights"], reverse=True)
        assert sum(one["weights"]) == pytest.approx(1, rel=1e-3)
        assert one["sample"]["classes"] == records(run)[one["task_id"]]["classes"]
        image = Image.open(io.BytesIO(base64.b64decode(one["sample"]["picture"])))
        assert image.size == (3 * 28 + 2 * 2, 28)


def test_the_weights_are_those_that_the_run_recalled():
    """Scored again, as a run does that is resumed after its last target, they are the same."""
    first = metaforge.run(GLYPHS, quiet=True)["run_dir"]
    path, status = Path(first) / "artifacts" / "picture.json", Path(first) / "status.json"
    before = path.read_bytes()
    for one in kept(first)["chosen"]:
        weights = np.array(one["weights"])
        told = records(first)[one["task_id"]]["weights"]["effective_sample_size"]
        assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(told, rel=1e-3)
    path.unlink()
    status.write_text(json.dumps({"state": "interrupted", "stage": "results"}))
    assert main(["run", "--quiet", "--resume", first]) == 0
    assert path.read_bytes() == before


def test_curves_are_shown_by_their_points():
    found = kept(metaforge.run(SMALL, ARMS, quiet=True)["run_dir"])
    for one in found["chosen"]:
        for shown in (one["sample"], *(r["sample"] for r in one["recalled"])):
            assert len(shown["points"]) == 5
            assert shown["picture"] is None
    assert found["kernel"]["groups"] == sorted(found["kernel"]["groups"])


def test_a_weighting_that_ranks_nothing_has_no_map():
    run = metaforge.run(SMALL, "weighting.use=uniform", quiet=True)["run_dir"]
    found = kept(run)
    assert found["map"] is None
    assert found["kernel"] is None
    assert Page((Path(run) / "report.html").read_text()).faults == []


@pytest.mark.parametrize(
    "overrides", [["evaluate.targets=1"], ["bank.size=1"], ["condition.steps=0"]]
)
def test_the_least_that_a_run_can_be(overrides):
    run = metaforge.run(SMALL, *overrides, quiet=True)
    assert not [note for note in run["notes"] if "not made" in note]
    assert Page((Path(run["run_dir"]) / "report.html").read_text()).faults == []


@pytest.mark.parametrize(
    ("name", "where"), [("keep", run_picture), ("write_run", html)], ids=["picture", "page"]
)
@pytest.mark.parametrize("error", [DataError("no space left"), ValueError("a slip")])
def test_what_cannot_be_made_costs_no_result(monkeypatch, capsys, name, where, error):
    def fail(*arguments, **named):
        raise error

    monkeypatch.setattr(where, name, fail)
    results = metaforge.run(SMALL)
    assert results["conditional"]["n"] == 12
    run = Path(results["run_dir"])
    assert json.loads((run / "status.json").read_text())["state"] == "done"
    assert f"not made: {'ValueError: ' * isinstance(error, ValueError)}{error}" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert not list(run.rglob("*.part"))


def test_a_disk_that_is_full_leaves_no_half_a_page(monkeypatch):
    results = metaforge.run(SMALL, quiet=True)
    run = Path(results["run_dir"])
    before = (run / "report.html").read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left on device; earlier files are intact"):
        html.write_run(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.glob(".*.part"))


def test_a_cached_learner_brings_its_curve():
    first, second = (metaforge.run(SMALL, "seed=5", quiet=True)["run_dir"] for _ in range(2))
    assert "from the cache" in (Path(second) / "log.txt").read_text()
    curves = [(Path(run) / "metrics.jsonl").read_text() for run in (first, second)]
    assert curves[0] == curves[1]
    assert len(curves[0].splitlines()) == 4


# -- pictures of tasks ---------------------------------------------------------------------------


def glyphs(**options):
    options = {"ways": 3, "shots": 2, "queries": 2, **FEW, **options}
    return metaforge.create("dataset", "glyphs", context=Context(seed=0), **options)


def test_features_are_shown_by_the_images_behind_them():
    """Of the same task, whether the learner sees images or features of them."""
    features, images = glyphs(), glyphs(input="images")
    assert len(features.shape.input_shape) == 1
    for split, task_id in (("train", 0), ("test", 7)):
        seen = features.pictures(split, task_id)
        assert seen.dtype == np.uint8
        assert seen.shape == (3, 1, 28, 28)
        assert np.array_equal(seen, images.pictures(split, task_id))
        first = images.batch(split, [task_id]).support_x[0, ::2]
        assert np.array_equal(seen, (first * 255).round().byte().numpy())


def test_a_mixture_shows_its_sources_images():
    letters = {"use": "glyphs", "kinds": {"letters": 1, "typefaces": 0}, **FEW}
    faces = {"use": "glyphs", "kinds": {"letters": 0, "typefaces": 1}, **FEW}
    mixture = metaforge.create(
        "dataset",
        "mixture",
        context=Context(seed=0),
        ways=3,
        shots=1,
        queries=2,
        sources={"letters": letters, "faces": faces},
    )
    for task_id in range(6):
        source = mixture.group_names[int(mixture.groups("test", [task_id])[0])]
        kinds = {"letters": {"letters": 1, "typefaces": 0}, "faces": {"letters": 0, "typefaces": 1}}
        own = glyphs(kinds=kinds[source], shots=1)
        assert np.array_equal(mixture.pictures("test", task_id), own.pictures("test", task_id))


def test_samples_that_are_no_images_have_no_pictures():
    assert metaforge.create("dataset", "sinusoids").pictures("train", 0) is None


def test_images_of_real_numbers_are_stretched():
    from metaforge.pooled import PooledTasks

    x = torch.randn(12, 3, 8, 8)
    pool = Pool("all", tuple(np.arange(4 * k, 4 * k + 4) for k in range(3)), tuple("abc"))
    source = PooledTasks(
        x, {"train": [pool]}, TaskSizes(ways=3, shots=2, queries=2), seed=0, name="own"
    )
    seen = source.pictures("train", 0)
    assert seen.shape == (3, 3, 8, 8)
    assert (seen.min(), seen.max()) == (0, 255)


def test_classes_of_turned_images_are_shown_turned():
    from metaforge.image_options import Augment
    from metaforge.pooled import PooledTasks
    from metaforge.turned import turned_pools

    x = torch.arange(4 * 64, dtype=torch.uint8).view(4, 1, 8, 8)
    pool = Pool("all", tuple(np.array([2 * k, 2 * k + 1]) for k in range(2)), ("a", "b"))
    augment = Augment(rotations="train")
    source = PooledTasks(
        x,
        turned_pools({"train": [pool]}, 4, "train"),
        TaskSizes(ways=5, shots=1, queries=1),
        seed=0,
        name="own",
        augment=augment,
        scale=1 / 255,
        images=x,
    )
    turned = {torch.rot90(image[0], turn).numpy().tobytes() for image in x for turn in range(4)}
    for task_id in range(4):
        assert {one[0].tobytes() for one in source.pictures("train", task_id)} <= turned


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((1, 28, 28), True),
        ((3, 84, 84), True),
        ((64,), False),
        ((5, 8, 8), False),
        ((1, 1, 9), False),
    ],
)
def test_what_an_image_is(shape, image):
    assert is_image(shape) is image


def test_bytes_of_images():
    assert as_bytes(np.array([[[[0.0, 0.5, 1.0]]]])).ravel().tolist() == [0, 128, 255]
    assert as_bytes(np.array([[[[-1.0, 0.0, 3.0]]]])).ravel().tolist() == [0, 64, 255]
    assert as_bytes(np.array([[[[np.nan, 0.0, np.inf]]]])).ravel().tolist() == [0, 0, 0]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_strip_is_small_and_in_order(channels):
    images = np.zeros((4, channels, 84, 84), np.uint8)
    images[2] = 200
    sheet = Image.open(io.BytesIO(strip(images))).convert("RGB")
    assert sheet.size == (4 * SIDE + 3 * 2, SIDE)
    light = [sheet.getpixel((place * (SIDE + 2) + 5, 5))[0] for place in range(4)]
    assert light == [0, 0, 200, 0]
    assert strip(images) == strip(images)
