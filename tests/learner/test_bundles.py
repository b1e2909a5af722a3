"""A bundle conditions as its run does, without the run's data, and tells when it would not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DamagedFile, DataError, PluginError
from metaforge.image_files import ImageForm
from metaforge.image_options import Augment
from metaforge.learner import banks, bundles
from metaforge.mixed import MixtureTasks
from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.preprocess import Preprocess
from metaforge.records import load_tensors, save_tensors
from metaforge.task_sizes import TaskSizes
from metaforge.turned import turned_pools
from metaforge_mixture.source import ProjectedTasks
from tests import sealed
from tests.learner.runs import WIDTH

X, Y = np.random.default_rng(0).normal(size=(6, WIDTH)), list("abcabc")


def bundle_of(made, name, folder):
    _, learner = made(name)
    bundles.write(learner, folder / "bundle")
    return learner, folder / "bundle"


@pytest.mark.parametrize("name", ["ls", "maml", "unequal", "uncertain", "selected", "regression"])
def test_it_conditions_as_its_run(made, tmp_path, name):
    learner, path = bundle_of(made, name, tmp_path)
    x, y = (X[:, :1], X[:, 1]) if name == "regression" else (X, Y)
    found = metaforge.load(path)
    assert found.notes == []
    for steps in (None, 0):
        wanted, module = learner.condition(x, y, steps), found.condition(x, y, steps)
        assert module.classes == wanted.classes
        for one, other in zip(module.parameters(), wanted.parameters(), strict=True):
            assert torch.equal(one, other)
    if name == "ls":  # other ways are drawn anew from it too
        wide = learner.condition(X, list("abcdab")), found.condition(X, list("abcdab"))
        assert torch.equal(wide[0].weight, wide[1].weight)
    if name == "regression":
        with pytest.raises(DataError, match="listed tasks"):
            found.parts.source.batch("train", [10**6])


def same(one, other, ids=range(12), view="input"):
    a, b = (source.batch("train", list(ids), view) for source in (one, other))
    return all(
        torch.equal(getattr(a, name), getattr(b, name))
        for name in ("support_x", "support_y", "query_x", "query_y", "support_mask", "query_mask")
    )


def through_json(source, n=12):
    facts, tensors = banks.stored(source, range(n))
    return banks.restored(json.loads(json.dumps(facts)), tensors, Context())


def pooled(seed=0, *, group=None, turned=False, augment=None, features=False, used=10):
    """Images of 15 classes, the first ``used`` in training."""
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.integers(0, 256, (120, 1, 6, 6)).astype("uint8"))
    rows = np.random.default_rng(2).permutation(120).reshape(15, 8)
    groups = None if group is None else np.arange(120) // 2

    def pool(mine):
        return Pool("p", tuple(rows[i] for i in mine), tuple(map(str, mine)), sample_groups=groups)

    pools = {"train": [pool(range(used))], "val": [pool(range(used, 15))]}
    return PooledTasks(
        x,
        turned_pools(pools, 120, "train") if turned else pools,
        TaskSizes(3, (1, 2), 2, "replace"),
        seed=seed,
        name="p",
        scale=1 / 255,
        augment=augment,
        features=torch.from_numpy(rng.normal(size=(120, 3))).float() if features else None,
        preprocess={"input": Preprocess((1, 6, 6), ImageForm(1, 6, 6))},
    )


@pytest.mark.parametrize(
    "source",
    [
        pooled(),
        pooled(group=True),
        pooled(turned=True, augment=Augment(rotations="train", crop=1, flip=True)),
        pooled(turned=True, group=True, augment=Augment(rotations="train")),
        pooled(features=True),
        MixtureTasks({"a": pooled(), "b": pooled(used=8)}, {"a": 0.3, "b": 0.7}, seed=1),
    ],
    ids=["plain", "sample groups", "augmented", "turned groups", "features", "mixture"],
)
def test_tasks_are_drawn_as_before(source):
    found = through_json(source)
    assert same(source, found)
    assert same(source.resized(2), found.resized(2))
    assert not same(source, pooled(seed=1))
    assert torch.equal(source.groups("train", range(12)), found.groups("train", range(12)))
    if source.has_features:
        assert same(source, found, view="features")


def test_rows_of_other_splits_stay_behind():
    _, tensors = banks.stored(pooled(), range(3))
    assert len(tensors["x"]) == 80
    assert banks.size(pooled(), range(3)) == 80 * 36


def test_tasks_of_any_other_source_are_listed():
    from metaforge_mixture.projection import Projection

    shift, basis = torch.zeros(36).double(), torch.eye(36)[:, :5].double()
    source = ProjectedTasks(pooled(), Projection(shift, basis, False))
    both = MixtureTasks(
        {"a": source, "b": ProjectedTasks(pooled(3), source.projection)},
        {"a": 0.5, "b": 0.5},
        seed=0,
    )
    for one in (source, both):
        found = through_json(one)
        assert same(one, found)
        with pytest.raises(DataError, match="of 3 classes alone"):
            found.resized(2)
    np.testing.assert_array_equal(through_json(source).preprocess().basis, basis.numpy())


def test_numbers_are_halved_only_where_that_is_exact():
    whole = torch.arange(6.0).reshape(2, 3)
    assert banks._exact(whole).dtype == torch.float16
    assert banks._exact(whole + 1e-4).dtype == torch.float32


def spoiled(path, change):
    """The bundle with its JSON or a file changed, and checksums that fit."""

    def changed(told):
        change(told, path)
        told["files"] = {name: bundles.digest(path / name) for name in told["files"]}

    sealed.change(path / "bundle.json", changed)


def _other_rows(told, path):
    tensors, _ = load_tensors(path / "bank.safetensors")
    save_tensors(path / "bank.safetensors", tensors | {"x": tensors["x"].flip(0)})


def _other_shape(told, path):
    tensors, _ = load_tensors(path / "bank.safetensors")
    del tensors["pool0/lengths"]
    save_tensors(path / "bank.safetensors", tensors)


def test_a_bank_that_gives_other_signatures_is_told(made, tmp_path):
    _, path = bundle_of(made, "ls", tmp_path)
    spoiled(path, _other_rows)
    learner = metaforge.load(path)
    with pytest.raises(DamagedFile, match="signatures of its bank's tasks, made anew, differ by"):
        learner.condition(X, Y)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda told, path: told.update(format=99), DamagedFile, "a bundle of format 99"),
        (lambda told, path: told.pop("recipe"), DamagedFile, "recipe"),
        (_other_shape, DamagedFile, "its bank is not what this version"),
        (lambda told, path: told["recipe"]["inner"].update(use="gone"), PluginError, "gone"),
    ],
)
def test_a_bundle_of_another_make_is_told(made, tmp_path, change, error, said):
    _, path = bundle_of(made, "ls", tmp_path)
    spoiled(path, change)
    with pytest.raises(error, match=said):
        metaforge.load(path)


def test_what_is_not_whole_is_told_all_of_it(made, tmp_path):
    _, path = bundle_of(made, "ls", tmp_path)
    (path / "theta_hat.safetensors").unlink()
    (path / "bank.safetensors").write_bytes(b"cut")
    with pytest.raises(DamagedFile, match=r"theta_hat\S* is missing; bank\S* is not what was"):
        metaforge.load(path)


def test_versions_that_differ_are_told_in_words(made, tmp_path):
    _, path = bundle_of(made, "ls", tmp_path)

    def older(told, path):
        told["metaforge"] = "0.0.1"
        told["components"]["inner"]["version"] = "0.0.1"

    spoiled(path, older)
    notes = metaforge.load(path).notes
    assert "metaforge: 0.0.1 -> 0.1.0" in notes
    assert any("inner ls, version: 0.0.1 -> 0.1.0" in note for note in notes)


def test_a_missing_plugin_is_named(made, tmp_path):
    _, path = bundle_of(made, "ls", tmp_path)

    def foreign(told, path):
        told["recipe"]["kernel"]["use"] = "strange"
        told["components"]["kernel"] |= {
            "name": "strange",
            "distribution": "their-kernels",
            "version": "2.3",
        }

    spoiled(path, foreign)
    with pytest.raises(PluginError, match=r"strange was from their-kernels 2\.3: install it"):
        metaforge.load(path)


def test_nothing_is_overwritten_and_nothing_half_written(made, tmp_path, monkeypatch):
    learner, path = bundle_of(made, "ls", tmp_path)
    before = (path / "bundle.json").read_text()
    with pytest.raises(DataError, match="nothing is overwritten without --force"):
        bundles.write(learner, path)

    def fails(*_):
        raise OSError(28, "full")

    monkeypatch.setattr(bundles, "write_json", fails)
    for force, where in ((True, path), (False, tmp_path / "new")):
        with pytest.raises(DataError, match="cannot write: full"):
            bundles.write(learner, where, force=force)
    assert (path / "bundle.json").read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["bundle"]


def test_a_runs_own_bundle_serves_without_its_data(made, tmp_path):
    run, learner = made("ls")
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    bundles.write(learner, copy / "bundle")
    (copy / "artifacts" / "theta_hat.safetensors").unlink()
    wanted = learner.condition(X, Y)
    assert torch.equal(metaforge.load(copy).condition(X, Y).weight, wanted.weight)


def test_the_estimate_is_near(made, tmp_path):
    for name in ("ls", "regression"):
        learner, path = bundle_of(made, name, tmp_path / name)
        told = sum((path / one).stat().st_size for one in bundles.FILES[:2])
        assert 0.4 * told < bundles.estimate(learner) < 2 * told
