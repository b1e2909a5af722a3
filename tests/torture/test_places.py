"""Folders, files and pipes that are not what they were: full, read-only, gone, not read from."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.torture.harness import (
    RECIPE,
    dice,
    differing,
    figures,
    folder,
    number,
    run,
    survives,
    tally,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system in memory, which only some users may mount."""
    path = tmp_path / "disk"
    path.mkdir()

    def mount(*words: str) -> int:
        return subprocess.run([*words, str(path)], capture_output=True, check=False).returncode

    if os.geteuid() or mount("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        pytest.skip("needs a user who may mount a small file system")
    yield path
    assert mount("umount") == 0


def test_a_disk_that_is_full_and_then_has_room(zygote, whole, small_disk):
    rng = dice("disk")
    for trial in range(number(3, 60)):
        cwd = small_disk / "run"
        cwd.mkdir()
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filler = small_disk / "filler"
        room = rng.randrange(int(2.5 * whole.ended.bytes))
        with filler.open("wb") as file:
            file.write(bytes(max(0, free - room)))
        ended = run(zygote, cwd) if room > 8192 else None  # the recipe itself needs some
        filler.unlink()
        if ended is None:
            outcome = "no room for a recipe"
        elif (path := folder(cwd)) is None or not (path / "resolved.yaml").exists():
            outcome = "ended before it began"
            assert "No space left" in ended.told_in_one()
        else:
            outcome = "went through" if ended.code == 0 else "resumed"
            if ended.code:
                assert "No space left" in ended.told_in_one(), ended.err
            again = zygote.call("run", "--quiet", "--resume", str(path), cwd=cwd)
            assert again.code == 0, again.err
            assert not differing(figures(path), whole.figures), trial
        tally["disk full", outcome] += 1
        subprocess.run(["rm", "-rf", str(cwd)], check=True)


def powerless(cwd: Path, zygote, *argv: str):
    return zygote.call(*argv, cwd=cwd, fault={"kind": "powerless"})


def test_a_folder_that_is_read_only_is_told_at_once(zygote, whole, tmp_path):
    begun = {"kind": "signal", "stage": "evaluate", "signal": signal.SIGKILL, "after": 0.05}
    run(zygote, tmp_path, begun)
    path = folder(tmp_path)
    assert path is not None
    for closed in (path, path / "artifacts", path.parent):
        closed.chmod(0o555)
        try:
            words = ("--resume", str(path)) if closed != path.parent else ("torture.yaml",)
            ended = powerless(tmp_path, zygote, "run", "--quiet", *words)
        finally:
            closed.chmod(0o755)
        if closed == path.parent:
            assert "Permission denied" in ended.told_in_one() or "not writable" in ended.err
        elif closed == path:
            assert "Permission denied" in ended.told_in_one()
        tally["folder read-only", "told" if ended.code else "not needed"] += 1
    again = zygote.call("run", "--quiet", "--resume", str(path), cwd=tmp_path)
    assert again.code == 0, again.err
    assert not differing(figures(path), whole.figures)


def write_data(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(12, 6)).repeat(20, axis=0)
    x = (means + 0.3 * rng.normal(size=means.shape)).astype(np.float32)
    y = np.arange(12).repeat(20)
    split = np.array(["train", "val", "test"])[(y % 3)]
    np.savez(path, X=x, y=y, split=split)


DATA = {
    "data": {"use": "arrays", "path": "data.npz", "ways": 2, "shots": 3, "queries": 4},
    "inner": {"use": "ls"},
}


def test_a_data_file_that_vanishes_or_changes_is_told_and_nothing_is_lost(zygote, tmp_path):
    recipe = {key: RECIPE[key] for key in ("bank", "meta_train", "condition", "evaluate")}
    (tmp_path / "mine.yaml").write_text(json.dumps({"name": "mine", **DATA, **recipe}))
    data = tmp_path / "data.npz"
    write_data(data, 0)
    whole = zygote.call("run", "mine.yaml", "--quiet", "output=whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    fault = {"kind": "signal", "stage": "evaluate", "signal": signal.SIGKILL, "after": 0.01}
    zygote.call("run", "mine.yaml", "--quiet", cwd=tmp_path, fault=fault)
    path = folder(tmp_path)
    assert path is not None
    kept = {p.name: p.read_bytes() for p in (path / "artifacts").iterdir()}
    resume = ("run", "--quiet", "--resume", str(path))
    moved = data.rename(tmp_path / "away.npz")
    assert "data.npz" in zygote.call(*resume, cwd=tmp_path).told_in_one()
    write_data(data, 1)
    assert "data have changed" in zygote.call(*resume, cwd=tmp_path).told_in_one()
    data.write_bytes(moved.read_bytes()[:500])
    assert "data.npz" in zygote.call(*resume, cwd=tmp_path).told_in_one()
    assert {p.name: p.read_bytes() for p in (path / "artifacts").iterdir()} == kept
    moved.replace(data)
    assert zygote.call(*resume, cwd=tmp_path).code == 0
    (first,) = (tmp_path / "whole").iterdir()
    assert (path / "targets.jsonl").read_bytes() == (first / "targets.jsonl").read_bytes()
    tally["data file gone, other or cut", "told, then resumed"] += 3


def full_pipe(path: Path) -> int:
    """A named pipe that holds all it can; its reading end, which nobody reads."""
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(end, bytes(512))
    return end


def test_a_full_pipe_is_waited_for(zygote, whole, tmp_path):
    """Neither lost nor ended: the run goes on as soon as somebody reads."""
    end = full_pipe(tmp_path / "pipe")
    (tmp_path / "torture.yaml").write_text(json.dumps(RECIPE))
    zygote.begin("run", "torture.yaml", fault={}, cwd=tmp_path, stderr=str(tmp_path / "pipe"))
    time.sleep(1.0)
    assert os.read(end, 4096) == bytes(4096)
    os.set_blocking(end, True)
    said = b""
    while b"targets: 8" not in said:
        said += os.read(end, 4096)
    os.set_blocking(end, False)
    ended = zygote.end()
    os.close(end)
    assert ended.code == 0
    path = folder(tmp_path)
    assert path is not None
    assert not differing(figures(path), whole.figures)
    tally["pipe full", "waited for"] += 1


def test_a_run_that_waits_for_a_full_pipe_can_be_killed_and_resumed(zygote, whole, tmp_path):
    end = full_pipe(tmp_path / "pipe")
    (tmp_path / "torture.yaml").write_text(json.dumps(RECIPE))
    fault = {"kind": "signal", "stage": "prepare", "signal": signal.SIGKILL, "after": 1.0}
    zygote.begin("run", "torture.yaml", fault=fault, cwd=tmp_path, stderr=str(tmp_path / "pipe"))
    ended = zygote.end()
    os.close(end)
    assert ended.code == -signal.SIGKILL
    path = folder(tmp_path)
    assert path is not None
    assert zygote.call("run", "--quiet", "--resume", str(path), cwd=tmp_path).code == 0
    assert not differing(figures(path), whole.figures)
    tally["pipe full", "killed, then resumed"] += 1


def test_survives_would_see_another_run(zygote, whole, tmp_path):
    """The broken specimen of every test here: a run of other bits is not taken for the same."""
    other = {**whole.figures, "targets.jsonl": whole.figures["targets.jsonl"] + b"\n"}
    with pytest.raises(AssertionError, match=r"targets\.jsonl"):
        survives(zygote, tmp_path, other, {}, "none")
