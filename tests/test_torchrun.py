"""A run of several ranks ends everywhere, told once, and goes on from its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import metaforge
from benchmarks import pages, scaling
from metaforge import metatrain, place
from metaforge.errors import NumericError, PluginError, RecipeError
from metaforge.evaluation import Evaluator
from metaforge.pipeline import resume
from metaforge.records import load_tensors, write_json
from metaforge.rundir import RunDir
from metaforge_maml.algorithm import Maml
from tests.rank_processes import Ranks
from tests.small import SMALL

TRAINING = {**SMALL, "precision": "float64", "evaluate": {"targets": 2}}
TRAINING["meta_train"] = {**SMALL["meta_train"], "steps": 200}
#: theta_hat is the initial one, so that its bits are those of one process.
EVALUATING = {**SMALL, "meta_train": {"steps": 0}, "evaluate": {"targets": 60}}


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def begin(size: int, recipe: dict, *changes: str, **more) -> Ranks:
    write_json(Path("recipe.yaml"), recipe)
    return Ranks(size, ["run", "recipe.yaml", *changes, "output=shared"], **more)


def folder(output: str = "shared") -> Path:
    (found,) = Path(output).iterdir()
    return found


def lines(name: str) -> list[str]:
    """Of the run's file, as far as they are written."""
    found = [path.read_text() for path in Path("shared").glob(f"*/{name}")]
    return found[0].splitlines() if found else []


def state() -> dict:
    return json.loads((folder() / "status.json").read_text())


def alone(recipe: dict) -> Path:
    return Path(metaforge.run(recipe, "output=alone", quiet=True)["run_dir"])


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_killed_among_targets_ends_the_run_which_another_number_ends(killed):
    ran = begin(2, EVALUATING)
    seen = len(ran.until(lambda: lines("targets.jsonl")))
    ran.send(signal.SIGKILL, killed)
    codes = ran.end()
    assert codes[killed] == -9
    assert codes[1 - killed] == 1
    (error,) = ran.errors()
    assert f"rank {killed} of 2 ended early" in error
    assert f"metaforge run --resume {folder()}" in error
    assert "Traceback" not in ran.said()
    assert seen <= len(lines("targets.jsonl")) < 60
    if killed:  # the first could not write
        assert state()["state"] == "failed"
        assert "rank 1 of 2 ended early" in state()["error"]
    again = Ranks(3, ["run", "--resume", str(folder())], "again")
    assert again.end() == [0, 0, 0], again.said()
    assert state()["state"] == "done"
    whole = alone(EVALUATING) / "targets.jsonl"
    assert (folder() / "targets.jsonl").read_bytes() == whole.read_bytes()


def test_a_rank_killed_in_meta_training_leaves_what_another_number_goes_on_with():
    ran = begin(2, TRAINING)
    ran.until(lambda: len(lines("metrics.jsonl")) > 2)
    ran.send(signal.SIGKILL, 1)
    assert ran.end() == [1, -9]
    assert len(ran.errors()) == 1
    assert state()["stage"] == "meta-train"
    resume(folder(), quiet=True)
    whole = alone(TRAINING)
    ends = []
    for path in (folder(), whole):
        tensors, _ = load_tensors(path / "artifacts" / "checkpoint.safetensors")
        ends.append({k: v for k, v in tensors.items() if k.startswith("now/params")})
    for name, value in ends[1].items():
        assert float((ends[0][name] - value).abs().max()) < 1e-9
    # steps of two ranks and of one are in it: what others take from the cache is of one alone
    assert "from the cache" not in (whole / "log.txt").read_text()


@pytest.mark.parametrize(
    ("number", "those"), [(signal.SIGTERM, (0, 1)), (signal.SIGTERM, (1,)), (signal.SIGINT, (0, 1))]
)
def test_a_stop_in_meta_training_is_told_once_and_resumable(number, those):
    ran = begin(2, TRAINING, "meta_train.steps=100000")
    ran.until(lambda: lines("metrics.jsonl"))
    ran.send(number, *those)
    assert ran.end() == [130, 130]
    assert ran.errors() == [
        f"error: stopped during meta-train; go on with: metaforge run --resume {folder()}"
    ]
    assert "Traceback" not in ran.said()
    assert state()["state"] == "interrupted"


def test_a_stop_among_targets_is_told_once_and_goes_on():
    ran = begin(2, EVALUATING)
    ran.until(lambda: lines("targets.jsonl"))
    ran.send(signal.SIGTERM, 0, 1)
    assert ran.end() == [130, 130]
    (error,) = ran.errors()
    assert "stopped during evaluate" in error
    assert resume(folder(), quiet=True)["conditional"]["n"] == 60


def _bad_target(rank: int) -> None:
    score = Evaluator._score

    def bad(self, target, params, arm):
        if rank == 1 and int(target.task_ids[0]) == 4:
            raise NumericError("target 4: not finite")
        return score(self, target, params, arm)

    Evaluator._score = bad  # type: ignore[method-assign]


def _bad_step(rank: int) -> None:
    losses = Maml.losses

    def bad(self, params, tasks, **kind):
        if rank == 1 and kind.get("training"):
            raise PluginError("on one machine alone")
        return losses(self, params, tasks, **kind)

    Maml.losses = bad  # type: ignore[method-assign]


def _drifted(rank: int) -> None:
    metatrain.digest = lambda tensors: f"theta of {rank}"


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (_bad_target, 5, "target 4: not finite"),
        (_bad_step, 4, "on one machine alone"),
        (
            _drifted,
            4,
            "the ranks are not alike: theta theta of 0 on rank 0, theta of 1 on rank 1; ",
        ),
    ],
)
def test_an_error_of_one_rank_ends_all_with_its_code_told_once(change, code, says):
    ran = begin(3, {**SMALL, "evaluate": {"targets": 9}}, change=change)
    assert set(ran.end()) == {code}
    (error,) = ran.errors()
    assert says in error
    assert "Traceback" not in ran.said()
    assert state()["state"] == "failed"
    assert says in state()["error"]


def test_a_recipe_with_a_problem_is_told_by_the_first_rank_alone():
    ran = begin(2, SMALL, "inner.stpes=3", launcher=True)
    assert ran.end() == [2, -15]
    assert ran.said().count("did you mean 'steps'?") == 1


def test_workers_beside_ranks_are_refused_and_told_once():
    ran = begin(2, SMALL, "evaluate.workers=2")
    assert ran.end() == [2, 2]
    assert ran.said().count("evaluate.workers: 2: 2 ranks share the targets") == 1


def test_a_folder_that_is_held_is_told_once():
    path = alone({**SMALL, "meta_train": {"steps": 0}})
    with RunDir(path).locked():
        ran = Ranks(2, ["run", "--resume", str(path)])
        assert ran.end() == [3, 3]
    assert len(ran.errors()) == 1


def test_other_verbs_are_done_by_the_first_rank():
    ran = Ranks(2, ["ls", "kernel"])
    assert ran.end() == [0, 0]
    assert "gaussian" in ran.files[0].read_text()
    assert not ran.files[1].read_text()


PLACE = {
    **{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT not"),
        ({**PLACE, "RANK": "2"}, "name no process among several: RANK=2, WORLD_SIZE=2"),
        ({**PLACE, "LOCAL_RANK": "two"}, "LOCAL_RANK=two"),
    ],
)
def test_variables_that_name_no_rank_are_told(variables, says, monkeypatch):
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match=says):
        place.place()


def test_variables_that_name_a_rank_are_read(monkeypatch):
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    assert place.place() == place.Place(1, 2, 1, 2)
    assert place.idle()


def test_without_variables_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert place.place() is None
    assert not place.idle()


def test_the_benchmark_fills_its_place_in_the_docs_and_no_other():
    page = scaling.PAGE.read_text(encoding="utf-8")
    before = page.partition("<!-- scaling: begin -->\n")[2].partition("\n<!-- scaling: end -->")[0]
    log = "12:00:00 meta-train: 200 in 4.0 s\n12:00:09 targets: 100 in 9.0 s\n"
    found = {1: scaling.read(log), 2: scaling.read(log.replace("9.0", "4.5"))}
    assert found[1] == {"meta-train": 0.02, "targets": 0.09}
    filled = pages.put("scaling", scaling.table(found, "sp_ls", ["seed=1"]), page)
    assert "| 2 | 20 | 1.00 | 45 | 2.00 |" in filled
    assert pages.put("scaling", before, filled) == page


@pytest.mark.slow
def test_torchrun_itself_runs_a_recipe():
    write_json(Path("recipe.yaml"), SMALL)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, "-m", "metaforge", "run", "recipe.yaml", "output=shared"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert len(lines("targets.jsonl")) == 12
    assert done.stdout.count("run folder:") == 1
    assert done.stderr.count("meta-train: best validation") == 1
