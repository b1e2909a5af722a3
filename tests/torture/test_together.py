"""Two at once: on one folder, on one cache, and beside a prune; and the same run made otherwise."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaforge import cache
from tests.torture.harness import (
    RECIPE,
    ROOT,
    Zygote,
    dice,
    differing,
    figures,
    folder,
    number,
    run,
    tally,
)

pytestmark = pytest.mark.slow
#: What a run that found phase 1 in the cache does not have: no step was taken of which to tell.
CURVE = {"metrics.csv"}


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Iterator[Zygote]:
    """A second process that forks commands, so that two run at once."""
    process = Zygote(tmp_path_factory.mktemp("other"))
    yield process
    process.close()


def begin(zygote: Zygote, cwd: Path) -> None:
    """The recipe, without waiting for its end; runs beside each other share a cache."""
    cwd.mkdir(parents=True)
    (cwd / "torture.yaml").write_text(json.dumps(RECIPE))
    words = ("run", "torture.yaml", "--quiet")
    zygote.begin(*words, fault={}, cwd=cwd, cache=cwd.parent / "cache")


def made(cwd: Path) -> dict[str, Any]:
    path = folder(cwd)
    assert path is not None
    return figures(path)


def test_a_second_run_on_one_folder_is_refused_and_the_first_goes_on(
    zygote, other, whole, tmp_path
):
    path = tmp_path / "runs" / whole.path.name
    for trial in range(number(1, 10)):
        shutil.copytree(whole.path, path)
        (path / "targets.jsonl").unlink()
        (path / "artifacts" / "theta_hat.safetensors").unlink()
        (path / "artifacts" / "checkpoint.safetensors").unlink()
        words = ("run", "--quiet", "--resume", str(path))
        zygote.begin(*words, fault={}, cwd=tmp_path)
        time.sleep(0.2 + 0.02 * trial)
        second = other.call(*words, cwd=tmp_path)
        first = zygote.end()
        codes = sorted((first.code, second.code))
        assert codes == [0, 3], (first.err, second.err)
        refused = first if first.code else second
        assert "is running it; wait for it, or stop it first" in refused.told_in_one()
        assert not differing(figures(path), whole.figures)
        tally["two runs on one folder", "one is refused"] += 1
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def test_two_runs_that_share_a_cache_end_as_each_alone(zygote, other, whole, tmp_path):
    for trial in range(number(2, 20)):
        place = tmp_path / str(trial)
        begin(zygote, place / "a")
        time.sleep(dice("share", trial).uniform(0, 0.3))
        begin(other, place / "b")
        ends = zygote.end(), other.end()
        assert [ended.code for ended in ends] == [0, 0], [ended.err for ended in ends]
        for name in "ab":
            others = differing(made(place / name), whole.figures)
            assert set(others) <= CURVE, others
        assert not list((place / "cache").rglob("*.part"))
        tally["two runs share a cache", "both right"] += 1


def test_the_cache_is_pruned_while_a_run_goes_on(zygote, whole, tmp_path):
    for trial in range(number(2, 20)):
        place = tmp_path / str(trial)
        begin(zygote, place / "a")
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            cache.prune(place / "cache", keep=0)
        ended = zygote.end()
        assert ended.code == 0, ended.err
        assert not differing(made(place / "a"), whole.figures)
        tally["cache pruned all the while", "right"] += 1


def test_what_a_dead_run_left_in_the_cache_is_found(zygote, whole, tmp_path):
    rng = dice("parts")
    for trial in range(number(3, 30)):
        place = tmp_path / str(trial)
        fault = {"kind": "byte", "at": rng.randrange(whole.ended.bytes), "how": "kill"}
        run(zygote, place, fault)
        cache.prune(place / "cache")
        assert not list((place / "cache").rglob("*.part"))
        tally["killed, then cache pruned", "no part is left"] += 1


@pytest.mark.parametrize("kind", sorted({"metatrain", "select"}))
def test_a_damaged_file_of_the_cache_costs_time_alone(zygote, whole, tmp_path, kind):
    rng = dice("cache", kind)
    shutil.copytree(whole.cwd / "cache", tmp_path / "kept")
    for trial in range(number(4, 100)):
        place = tmp_path / str(trial)
        shutil.copytree(tmp_path / "kept", place / "cache")
        path = rng.choice(sorted((place / "cache" / kind).iterdir()))
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        path.write_bytes(data if trial % 3 else data[: len(data) // 2])
        ended = run(zygote, place)
        assert ended.code == 0, ended.err
        others = differing(made(place), whole.figures)
        assert set(others) <= CURVE, (trial, path.name, others)
        tally[f"damaged cache, {kind}", "same bits"] += 1


# -- the same bits, however a run is made ------------------------------------------------------


def test_the_same_command_twice(zygote, whole, tmp_path):
    assert run(zygote, tmp_path).code == 0
    assert not differing(made(tmp_path), whole.figures)


def test_in_a_process_of_its_own(whole, tmp_path):
    (tmp_path / "torture.yaml").write_text(json.dumps(RECIPE))
    done = subprocess.run(
        [sys.executable, "-m", "metaforge", "run", "torture.yaml", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "METAFORGE_CACHE": "cache", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not differing(made(tmp_path), whole.figures)


@pytest.mark.parametrize("workers", [2, 3])
def test_with_other_workers(zygote, whole, tmp_path, workers):
    ended = run(zygote, tmp_path, None, f"evaluate.workers={workers}")
    assert ended.code == 0, ended.err
    assert set(differing(made(tmp_path), whole.figures)) <= {"resolved.yaml"}


def test_another_seed_is_another_run(zygote, whole, tmp_path):
    """The broken specimen of the laws above."""
    run(zygote, tmp_path, None, "seed=1")
    assert "targets.jsonl" in differing(made(tmp_path), whole.figures)


def test_resumed_again_and_again(zygote, whole, tmp_path):
    """Killed in each stage in turn, on one way to the end."""
    run(zygote, tmp_path, {"kind": "byte", "at": 5000, "how": "kill"})
    path = folder(tmp_path)
    assert path is not None
    rng = dice("again")
    for _ in range(number(3, 20)):
        fault = {"kind": "byte", "at": rng.randrange(2000, 30_000), "how": "kill"}
        ended = zygote.call("run", "--quiet", "--resume", str(path), cwd=tmp_path, fault=fault)
        assert ended.code in (0, -signal.SIGKILL)
    ended = zygote.call("run", "--quiet", "--resume", str(path), cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert not differing(figures(path), whole.figures)
    tally["killed again and again", "resumed"] += 1
