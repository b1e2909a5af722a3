"""Several ranks compute what one process does: parameters, selection and every record."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metaforge
from metaforge import metatrain, place
from metaforge.cli import torchrun
from metaforge.errors import DataError, NumericError
from metaforge.outer import OuterLoop
from metaforge.records import load_tensors, write_json
from metaforge_maml.algorithm import Maml
from tests.rank_processes import Ranks
from tests.small import SMALL

EXACT = {
    **SMALL,
    "precision": "float64",
    "meta_train": {"steps": 20, "batch": 5, "validate_every": 10, "validation_targets": 7},
    "evaluate": {"targets": 7},
}
LEO = {
    **EXACT,
    "data": {
        "use": "arrays",
        "path": "features.npz",
        "normalize": "l2",
        "ways": 3,
        "shots": 1,
        "queries": 2,
    },
    # its sampled divergence would make 1e-3 of a rounding in 20 steps, in one process too
    "inner": {"use": "leo", "kl_weight": 0, "orthogonality_penalty_weight": 1},
    "bank": {"size": 40},
    "condition": {"steps": 1, "batch": 2, "top_m": 5},
    "evaluate": {"targets": 2},
}
#: name: recipe, changes, numbers of ranks
CASES = {
    "plain": (EXACT, [], (2, 3)),
    "clipped": (EXACT, ["meta_train.optimizer.clip_value=0.1"], (2,)),
    "learned": (EXACT, ["weighting.use=uncertainty"], (3,)),
    "few": (EXACT, ["meta_train.batch=2", "meta_train.validation_targets=2"], (3,)),
    "leo": (LEO, [], (2, 3)),
}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    features, labels = random.standard_normal((300, 64)), np.repeat(np.arange(30), 10)
    np.savez("features.npz", X=features.astype("float32"), y=labels)


def wrote(recipe: dict, name: str = "recipe.yaml") -> str:
    write_json(Path(name), recipe)
    return name


def folder(output: str) -> Path:
    (found,) = Path(output).iterdir()
    return found


def theta(path: Path) -> dict[str, torch.Tensor]:
    """After the last step, and at the best."""
    tensors, _ = load_tensors(path / "artifacts" / "checkpoint.safetensors")
    return {k: v for k, v in tensors.items() if k.split("/")[1] in ("params", "extra")}


def distance(one: Path, other: Path) -> float:
    first, second = theta(one), theta(other)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "targets.jsonl").read_text().splitlines()]


def shared(size: int, recipe: dict, *changes: str, output: str = "shared", **more) -> Path:
    ran = Ranks(size, ["run", wrote(recipe), *changes, f"output={output}"], output, **more)
    assert ran.end() == [0] * size, ran.said()
    assert all(not file.read_text() for file in ran.files[1:])
    return folder(output)


def alone(recipe: dict, *changes: str) -> Path:
    return Path(metaforge.run(recipe, *changes, "output=alone", quiet=True)["run_dir"])


def _together(rank: int) -> None:
    """What two ranks do together, in step after errors and after answers that nobody took."""
    with torchrun.ranks(place.place()) as shared:
        group = shared["ranks"]
        assert group.from_first(lambda: rank + 7) == 7

        def fails() -> None:
            raise DataError(f"on rank {rank}")

        with pytest.raises(DataError, match="on rank 0"):
            group.from_first(fails)
        answers = list(group.ordered(lambda p: bytes(9_000_000 * p), range(3), 1))
        assert list(map(len, answers)) == ([] if rank else [0, 9_000_000, 18_000_000])
        answers = group.ordered(lambda p: p, range(1000), 1)
        assert [p for p, _ in zip(answers, range(3), strict=False)] == ([] if rank else [0, 1, 2])
        answers.close()
        assert [group.share(n).count for n in (1, 5)] == ([0, 2] if rank else [1, 3])
        own = torch.full((2 if rank else 3,), 1.0 + rank, requires_grad=True)
        whole = group.whole(own, 5)
        assert whole.tolist() == [1, 1, 1, 2, 2]
        (gradient,) = torch.autograd.grad((whole**2).sum(), own)
        assert gradient.tolist() == [2 + 2 * rank] * len(own)
        doubled, whole_number = group.total([torch.ones(2, 2), torch.tensor([rank])])
        assert doubled.tolist() == [[2, 2], [2, 2]]
        assert whole_number.tolist() == [1]
    os._exit(0)


def test_what_ranks_do_together():
    ran = Ranks(2, [], change=_together)
    assert ran.end() == [0, 0], ran.said()


@pytest.mark.parametrize("name", CASES)
def test_two_and_three_ranks_train_and_evaluate_as_one(name):
    recipe, changes, sizes = CASES[name]
    one = alone(recipe, *changes)
    for size in sizes:
        several = shared(size, recipe, *changes, output=f"shared{size}")
        assert distance(one, several) < 1e-12  # after 20 steps
        was, now = records(one), records(several)
        assert [r["task_id"] for r in was] == [r["task_id"] for r in now]
        for first, second in zip(was, now, strict=True):
            assert second["curves"]["conditional"] == pytest.approx(
                first["curves"]["conditional"], abs=1e-9
            )
        assert json.loads((several / "env.json").read_text())["ranks"] == size
        assert f"{size} ranks" in (several / "log.txt").read_text()


class _First:
    """Ranks that all take themselves for the first."""

    first = True

    def __init__(self, those: Any):
        self.size, self.total = those.size, those.total


def _penalty_on_every_rank(rank: int) -> None:
    init = OuterLoop.__init__

    def broken(self: OuterLoop, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        self.ranks = _First(self.ranks)

    OuterLoop.__init__ = broken


def _noise_by_rank(rank: int) -> None:
    cut = metatrain.noise_of
    metatrain.noise_of = lambda noise, rows: cut(noise, slice(0, rows.stop - rows.start))


def _mean_of_means(rank: int) -> None:
    from metaforge.group import Group

    Group.mean = lambda self, own, n: own.mean() / self.size


@pytest.mark.parametrize("wrong", [_penalty_on_every_rank, _noise_by_rank, _mean_of_means])
def test_a_split_that_means_something_else_is_seen(wrong, monkeypatch):
    # by plain steps: Adam's hide a scale
    steps = ("meta_train.steps=2", "meta_train.optimizer.use=sgd", "meta_train.optimizer.lr=0.01")
    one = alone(LEO, *steps)
    assert distance(one, shared(2, LEO, *steps)) < 1e-12
    monkeypatch.setenv("METAFORGE_CACHE", "another")
    assert distance(one, shared(2, LEO, *steps, output="wrong", change=wrong)) > 1e-6


def test_the_same_command_twice_gives_the_same_bits(monkeypatch):
    for output in ("first", "second"):
        monkeypatch.setenv("METAFORGE_CACHE", f"cache-{output}")
        shared(3, EXACT, output=output)
    files = ("targets.jsonl", "metrics.jsonl", "artifacts/theta_hat.safetensors")
    for name in files:
        assert (folder("first") / name).read_bytes() == (folder("second") / name).read_bytes()


def test_phase_1_of_several_ranks_is_no_cache_of_another_number():
    paths = [shared(2, EXACT), alone(EXACT), shared(2, EXACT, output="again")]
    from_cache = ["from the cache" in (path / "log.txt").read_text() for path in paths]
    assert from_cache == [False, False, True]


def test_601_targets_are_601_records_of_the_same_bits():
    small = ("meta_train.steps=0", "inner.steps=1", "condition.steps=1", "condition.batch=1")
    many = (*small, "evaluate.targets=601")
    one, several = alone(EXACT, *many), shared(2, EXACT, *many)
    assert len(records(several)) == 601
    assert (several / "targets.jsonl").read_bytes() == (one / "targets.jsonl").read_bytes()
    assert len((several / "timings.jsonl").read_text().splitlines()) == 601


def test_one_rank_is_the_plain_run(tmp_path, monkeypatch):
    for output in ("alone", "one"):
        monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / f"cache-{output}"))
        if output == "alone":
            one = alone(EXACT)
        else:
            several = shared(1, EXACT, change=_without_torch_distributed)
    for name in ("targets.jsonl", "metrics.jsonl", "artifacts/theta_hat.safetensors"):
        assert (several / name).read_bytes() == (one / name).read_bytes()


def _without_torch_distributed(rank: int) -> None:
    """An import of what several ranks need fails."""
    for name in ("metaforge.group", "metaforge.endings"):
        sys.modules[name] = None  # type: ignore[assignment]


def test_selection_tries_and_chooses_the_same(tmp_path, monkeypatch):
    """One combination fails on every target, whichever rank has it, and is left out."""
    grid = {"condition.top_m": [3, 20], "condition.optimizer.lr": [1e-3, 1e300]}
    recipe = {
        **EXACT,
        "meta_train": {**EXACT["meta_train"], "steps": 0},
        "select": {"grid": grid, "targets": 10},
    }
    paths = []
    for name, made in (("one", alone), ("several", lambda recipe: shared(2, recipe))):
        monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / name))
        paths.append(made(recipe))
    tables = [(path / "select.json").read_text() for path in paths]
    assert tables[0] == tables[1]
    tried = json.loads(tables[1])["tried"]
    assert [bool(row["failed"]) for row in tried] == [False, False, True, True]
    for name in ("select.jsonl", "targets.jsonl"):
        assert (paths[0] / name).read_bytes() == (paths[1] / name).read_bytes()


def _infinite_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of one task of the fourth step is infinite, in training, wherever it is."""
    losses = Maml.losses
    bad = SMALL["bank"]["size"] + 3 * EXACT["meta_train"]["batch"] + 4

    def some(self, params, tasks, **kind):
        found = losses(self, params, tasks, **kind)
        return found * torch.where(tasks.task_ids == bad, float("inf"), 1.0)

    monkeypatch.setattr(Maml, "losses", some)


def test_a_task_that_is_not_finite_is_skipped_on_all_ranks_or_named(monkeypatch):
    _infinite_task(monkeypatch)  # forked processes have it too
    one, several = alone(EXACT, "on_nan=skip"), shared(2, EXACT, "on_nan=skip")
    assert distance(one, several) < 1e-12
    for path in (one, several):
        assert json.loads((path / "results.json").read_text())["meta_train"]["skipped"] == 1
    with pytest.raises(NumericError) as caught:
        alone(EXACT)
    ran = Ranks(2, ["run", wrote(EXACT), "output=stopped"])
    assert ran.end() == [5, 5]
    assert ran.errors() == [f"error: {caught.value}"]
    assert "1 of 5 tasks of the step are affected" in str(caught.value)
