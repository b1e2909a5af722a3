"""Targets shared among processes: the same bits, errors that arrive, nobody left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import metaforge
from metaforge import workers
from metaforge.errors import MetaforgeError, NumericError, RecipeError
from metaforge.pipeline import resume
from metaforge.recipe import load
from metaforge.records import write_json
from tests.small import SMALL as RECIPE

SMALL = {**RECIPE, "evaluate": {"targets": 7, "controls": ["random_m"]}}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def lines(run_dir: str | Path) -> list[dict]:
    text = (Path(run_dir) / "targets.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("n", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("crew", [1, 2, 3, 9])
def test_answers_come_in_order_each_once(n, crew):
    assert list(workers.ordered(lambda p: (p, p * p), range(10, 10 + n), crew)) == [
        (p, p * p) for p in range(10, 10 + n)
    ]


def test_several_workers_are_several_processes():
    assert len(set(workers.ordered(lambda p: os.getpid(), range(6), 3)) - {os.getpid()}) == 3


def test_an_error_arrives_at_its_position_and_the_crew_ends():
    def job(p: int) -> int:
        if p == 3:
            raise NumericError("target 3: not finite")
        return p

    found = []
    with pytest.raises(NumericError, match="target 3"):
        found.extend(workers.ordered(job, range(9), 2))
    assert found == [0, 1, 2]


def test_an_error_that_cannot_be_sent_still_says_what_happened():
    class Local(Exception):
        pass

    def job(p: int) -> int:
        raise Local("what happened")

    with pytest.raises(RuntimeError, match="Local: what happened"):
        list(workers.ordered(job, range(2), 2))


def test_a_killed_worker_is_an_error_that_says_so():
    def job(p: int) -> int:
        if p == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return p

    with pytest.raises(MetaforgeError, match="exit code -9"):
        list(workers.ordered(job, range(6), 2))


def test_leaving_early_ends_the_workers():
    answers = workers.ordered(lambda p: (os.getpid(), time.sleep(p))[0], range(0, 300, 30), 2)
    pid = next(answers)
    answers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_cannot_be_started_ends_those_that_were(monkeypatch):
    fork, children = os.fork, []

    def only_once() -> int:
        if children:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        if pid := fork():
            children.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", only_once)
    with pytest.raises(MetaforgeError, match="no worker process could be started: Resource temp"):
        list(workers.ordered(lambda p: time.sleep(300), range(4), 2))
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


def test_a_stopped_worker_can_be_ended():
    def job(p: int) -> int:
        if p == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return os.getpid()

    answers = workers.ordered(job, range(4), 2)
    next(answers)
    answers.close()


def test_a_daemonic_process_has_no_workers():
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)

    def run() -> None:
        send.send(workers.count(load(SMALL).recipe, "cpu"))

    process = fork.Process(target=run, daemon=True)
    process.start()
    assert receive.recv() == 1
    process.join()


def test_any_number_of_workers_gives_the_same_bits():
    runs = [metaforge.run(SMALL, f"evaluate.workers={n}")["run_dir"] for n in (1, 2, 3)]
    first, *others = [(Path(run) / "targets.jsonl").read_bytes() for run in runs]
    assert all(other == first for other in others)


AT_THE_FORK = """
import sys
import metaforge
from metaforge import workers

ordered = workers.ordered

def look(job, positions, crew):
    print("torch._dynamo" in sys.modules)
    return ordered(job, positions, crew)

workers.ordered = look
metaforge.run(RECIPE)
"""


def test_what_torch_imports_late_is_no_part_of_a_targets_time():
    """With meta-training cached, the first optimiser of a process is a target's."""
    recipe = {**SMALL, "inner": {"use": "ls"}}  # others import the compiler for torch.func
    metaforge.run(recipe)
    code = AT_THE_FORK.replace("RECIPE", repr(recipe))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "from the cache" in done.stderr
    assert done.stdout.splitlines()[0] == "True"


def test_default_is_one_a_core_with_one_thread_and_else_one(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(3)))
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    assert workers.count(load(SMALL).recipe, "cpu") == 3
    assert workers.count(load(SMALL, ["threads=2"]).recipe, "cpu") == 1
    assert workers.count(load(SMALL, ["evaluate.workers=2"]).recipe, "cpu") == 2
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    assert workers.count(load(SMALL).recipe, "cpu") == 1
    with pytest.raises(RecipeError, match="accelerator"):
        workers.count(load(SMALL, ["evaluate.workers=2"]).recipe, "cpu")


def test_a_run_has_one_thread_unless_told_and_puts_back_what_it_found():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = [
            json.loads((Path(metaforge.run(SMALL, *more)["run_dir"]) / "env.json").read_text())
            for more in ([], ["threads=2"], ["threads=null"])
        ]
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert [env["threads"] for env in found] == [1, 2, 3]
    assert after == 3


def test_workers_of_more_than_one_thread_are_refused_before_the_work():
    with pytest.raises(RecipeError, match=r"evaluate\.workers: workers compute on one thread"):
        load(SMALL, ["evaluate.workers=2", "threads=2"])


def test_killed_with_its_workers_it_resumes_to_the_same_bits_at_once(tmp_path):
    """The orphans neither hold the folder's lock nor live on."""
    whole = metaforge.run(SMALL, "evaluate.workers=2", "evaluate.targets=60")
    recipe = tmp_path / "recipe.yaml"
    write_json(recipe, SMALL)
    command = [sys.executable, "-m", "metaforge", "run", str(recipe), "evaluate.workers=2"]
    process = subprocess.Popen(
        [*command, "evaluate.targets=60", "output=killed"], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (some := list(tmp_path.glob("killed/*/targets.jsonl"))) or not lines(some[0].parent):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    folder = some[0].parent
    assert 0 < len(lines(folder)) < 60
    resume(folder)
    assert (folder / "targets.jsonl").read_bytes() == (
        Path(whole["run_dir"]) / "targets.jsonl"
    ).read_bytes()
    assert len(children) == 2
    while any(_alive(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
