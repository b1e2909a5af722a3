"""Whole runs on small real recipes: the laws of results, resuming, determinism."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import metaforge
from metaforge import plugins, registry
from metaforge.errors import (
    DamagedFile,
    DataError,
    MetaforgeError,
    NumericError,
    PluginError,
    RecipeError,
)
from metaforge.evaluation import Evaluator
from metaforge.metatrain import Progress
from metaforge.pipeline import resume
from metaforge.plugins import host
from metaforge.recipe import load
from metaforge.records import load_tensors, save_tensors
from metaforge.report import render_text
from metaforge.rundir import RunDir
from metaforge.seals import opened
from metaforge.warm_start import softmax_hint
from metaforge_maml.algorithm import Maml
from tests import sealed
from tests.small import SMALL

KERNELS = ("gaussian", "laplace", "linear")
WEIGHTINGS = ("tasml", "uniform", "uncertainty")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def run(*overrides: str) -> dict:
    return metaforge.run(SMALL, *overrides)


def without_clock(results: dict) -> dict:
    return {k: v for k, v in results.items() if k not in ("seconds", "run_dir")}


def read(run_dir: str, name: str) -> str:
    return (Path(run_dir) / name).read_text()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_every_kernel_with_every_weighting(kernel, weighting):
    results = run(f"kernel.use={kernel}", f"weighting.use={weighting}")
    for name in ("unconditional", "conditional", "difference"):
        figure = results[name]
        assert figure["n"] == 12
        assert figure["ci95"][0] <= figure["mean"] <= figure["ci95"][1]
    assert results["conditional"]["mean"] != results["unconditional"]["mean"]


def test_controls_are_paired_and_complete():
    controls = ["uniform_bank", "random_m", "topm_equal", "target_only", "uncertainty", "oracle"]
    results = run(f"evaluate.controls=[{', '.join(controls)}]", "evaluate.without_target_term=true")
    without = {
        f"{name}_without_target" for name in ("sp", "uniform_bank", "random_m", "topm_equal")
    }
    assert set(results["controls"]) == {*controls, *without}
    records = [json.loads(x) for x in read(results["run_dir"], "targets.jsonl").splitlines()]
    for name, control in results["controls"].items():
        last = np.array([r["curves"][name][-1] for r in records])
        assert control["mean"] == pytest.approx(last.mean())
        assert control["sd"] == pytest.approx(last.std(ddof=1))
        if name != "sp_without_target":
            against = control["compared_with"]
            sp = np.array([r["curves"][against][-1] for r in records])
            assert control["sp_minus_control"]["mean"] == pytest.approx((sp - last).mean())
    first = [{name: curve[0] for name, curve in r["curves"].items()} for r in records]
    assert all(len(set(at_zero.values())) == 1 for at_zero in first), "J = 0 is one baseline"


def test_zero_steps_is_the_unconditional_baseline():
    results = run("condition.steps=0")
    assert results["difference"]["mean"] == 0.0
    assert results["difference"]["p"] is None
    assert "undefined" in render_text(Path(results["run_dir"]))


def test_m_beyond_n_means_all():
    assert run("condition.top_m=100000")["conditional"]["n"] == 12


def test_the_same_command_twice_gives_the_same_bits():
    first, second = run("evaluate.controls=[random_m]"), run("evaluate.controls=[random_m]")
    assert without_clock(first) == without_clock(second)
    assert read(first["run_dir"], "targets.jsonl") == read(second["run_dir"], "targets.jsonl")


def test_the_cache_of_phase_1_is_used_where_it_may_be_and_not_where_it_may_not():
    log = "log.txt"
    run()
    assert "from the cache" in read(run("weighting.use=uniform")["run_dir"], log)
    assert "from the cache" in read(run("kernel.use=laplace")["run_dir"], log)
    for change in ("seed=1", "inner.lr=0.02", "meta_train.batch=5", "data.shots=6"):
        assert "from the cache" not in read(run(change)["run_dir"], log), change


def test_resolved_recipe_reproduces_the_run():
    first = run("condition.top_m=7")
    again = metaforge.run(Path(first["run_dir"]) / "resolved.yaml")
    assert without_clock(first)["conditional"] == without_clock(again)["conditional"]


def test_selection_is_made_on_validation_and_recorded():
    results = metaforge.run(
        {
            **SMALL,
            "select": {
                "grid": {
                    "condition.steps": [0, 3, 6],
                    "condition.top_m": [3, 20],
                    "weighting.lambda": [0.01, 1.0],
                },
                "targets": 5,
            },
        }
    )
    table = json.loads(read(results["run_dir"], "select.json"))
    assert len(table["tried"]) == 4
    assert table["split"] == "val"
    assert table["score"] == min(mean for row in table["tried"] for mean in row["curve"].values())
    assert set(results["selected"]) == {"condition.steps", "condition.top_m", "weighting.lambda"}
    assert results["steps"] == results["selected"]["condition.steps"]


def test_runs_of_targets_are_the_papers_protocol():
    results = run("evaluate.runs=3", "evaluate.targets=4")
    assert results["conditional"]["n"] == 12
    assert results["runs"]["runs"] == 3
    assert "sd_over_runs" in results["runs"]["conditional"]


def test_a_diverging_inner_loop_stops_with_the_task_and_the_step():
    with pytest.raises(NumericError, match=r"task \d+ is not finite .*inner step"):
        run("inner.lr=1e30")


def test_steps_that_are_not_finite_can_be_skipped_and_are_counted(monkeypatch):
    losses = Maml.losses
    calls = []

    def sometimes(self, params, tasks, **kind):
        calls.append(1)
        found = losses(self, params, tasks, **kind)
        return found * float("inf") if len(calls) % 20 == 0 else found

    monkeypatch.setattr(Maml, "losses", sometimes)
    results = run("on_nan=skip", "condition.steps=0")
    assert results["meta_train"]["skipped"] == 3  # step 60's loss, of three, ends the curve
    curve = [json.loads(line) for line in read(results["run_dir"], "metrics.jsonl").splitlines()]
    assert "loss" not in curve[-1]
    assert curve[-1]["skipped"] == 3
    assert "3 of 60 meta-training steps" in render_text(results["run_dir"])


def test_training_that_only_skips_is_no_baseline(monkeypatch):
    losses = Maml.losses

    def never(self, params, tasks, **kind):
        return losses(self, params, tasks, **kind) * float("inf")

    monkeypatch.setattr(Maml, "losses", never)
    with pytest.raises(NumericError, match="none of the 60 steps"):
        run("on_nan=skip")


def test_other_data_are_not_resumed():
    path = Path(run()["run_dir"])
    resume(path)
    note = path / "artifacts" / "data.json"
    note.write_text(json.dumps({"fingerprint": "0" * 32}))
    with pytest.raises(DataError, match="its data have changed since it began"):
        resume(path)


def test_the_environment_names_every_plugin_and_the_hash_of_its_files():
    env = json.loads((Path(run()["run_dir"]) / "env.json").read_text())
    found = {f"{p.distribution}:{p.name}": p for p in host().plugins if p.state == "loaded"}
    assert set(env["plugins"]) == set(found)
    weightings = env["plugins"]["metaforge:weightings"]
    assert weightings["source"] == found["metaforge:weightings"].source_hash
    assert weightings["version"] == metaforge.__version__


def test_other_code_is_not_resumed():
    results = run()
    older = Path(results["run_dir"]) / "env.json"
    sealed.change(older, lambda env: env["components"]["weighting"].update(version="0.0.1"))
    with pytest.raises(PluginError, match=r"(?s)cannot be resumed.*version: 0\.0\.1"):
        resume(Path(results["run_dir"]))
    assert "unconditional" in render_text(results["run_dir"]), "it is finished as it was"


def test_a_run_whose_plugin_is_gone_says_which_distribution_made_it():
    path = Path(run()["run_dir"])
    text = (path / "resolved.yaml").read_text()
    (path / "resolved.yaml").write_text(
        text.replace("use: tasml", "use: vanished").split("# seal")[0]
    )
    rename = {"name": "vanished"}
    sealed.change(path / "env.json", lambda env: env["components"]["weighting"].update(rename))
    with pytest.raises(
        MetaforgeError, match=r"(?s)'vanished'.*weighting vanished was from metaforge 0"
    ):
        resume(path)


PLUGIN = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_task_weightings():
    return [Component("task_weighting", "mine", "{target}", "{options}")]
"""


def test_a_run_of_a_plugin_file_that_is_not_given_says_how_to_give_it(tmp_path):
    uniform = registry.get("task_weighting", "uniform")
    text = PLUGIN.format(target=uniform.target, options=uniform.options)
    (tmp_path / "my_weighting.py").write_text(text)
    (tmp_path / "small.yaml").write_text(load(SMALL).to_yaml())
    words = ["--plugin", "my_weighting.py", "run", "small.yaml", "weighting.use=mine"]
    command = [sys.executable, "-m", "metaforge", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "unconditional (J = 0)" in done.stdout
    assert "unconditional (J = 0)" not in done.stderr
    (path,) = Path("runs").iterdir()
    message = rf"weighting mine was from the plugin file my_weighting\.py: .*--resume {path}"
    with pytest.raises(PluginError, match=rf"(?s)unknown task_weighting 'mine'.*{message}"):
        resume(path)


UNFINISHED = {
    "interrupted": "unfinished \\(interrupted, in evaluate\\); go on with: metaforge run --resume",
    "running": "wait for it, or if it was stopped, go on with: metaforge run --resume",
}


@pytest.mark.parametrize(("state", "message"), UNFINISHED.items(), ids=UNFINISHED)
def test_a_report_of_an_unfinished_run_says_how_it_goes_on(state, message):
    path = Path(run()["run_dir"])
    RunDir(path).status(state, "evaluate")
    with pytest.raises(DataError, match=message):
        render_text(path)


def test_a_run_resumes_with_other_workers_and_nothing_else_changed(capsys):
    first = metaforge.run(SMALL, "threads=1", "evaluate.workers=2")
    path = Path(first["run_dir"])
    (path / "targets.jsonl").write_text("")
    again = resume(path, ["evaluate.workers=1"])
    assert "workers 1," in capsys.readouterr().err
    assert without_clock(again) == without_clock(first)
    assert "resumed by process" in read(path, "log.txt")
    with pytest.raises(RecipeError, match=r"'condition\.steps=3': .*evaluate\.workers alone") as no:
        resume(path, ["condition.steps=3", "seed=1", "evaluate.workers=2"])
    assert len(no.value.problems) == 2
    with pytest.raises(RecipeError, match=r"evaluate\.workers: .*valid integer"):
        resume(path, {"evaluate.workers": "x"})


def test_a_lost_worker_is_told_with_what_can_be_typed(monkeypatch):
    score = Evaluator._score

    def killed(self, target, params, arm):
        if multiprocessing.current_process().daemon and int(target.task_ids[0]) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return score(self, target, params, arm)

    monkeypatch.setattr(Evaluator, "_score", killed)
    with pytest.raises(MetaforgeError, match=r"exit code -9") as caught:
        metaforge.run(SMALL, "threads=1", "evaluate.workers=2")
    command = str(caught.value).partition("go on with fewer: metaforge run --resume ")[2]
    path, change = command.split()
    assert json.loads(read(path, "status.json"))["state"] == "failed"
    assert "failed during evaluate: a worker process ended early" in read(path, "log.txt")
    assert resume(Path(path), [change])["conditional"]["n"] == 12


WRONG = {
    "env.json": "{}",
    "artifacts/data.json": '"abc"',
    "targets.jsonl": "3\n",
    "timings.jsonl": "[]\n",
    "metrics.jsonl": "null\n",
}


@pytest.mark.parametrize(("name", "text"), WRONG.items(), ids=WRONG)
def test_wrong_types_in_a_run_folder_are_told_on_resuming(name, text):
    path = Path(run()["run_dir"])
    if name == "metrics.jsonl":  # read where training goes on
        (path / "artifacts" / "theta_hat.safetensors").unlink()
        shutil.rmtree("cache")
    (path / name).write_text(text)
    with pytest.raises(DamagedFile, match=rf"{name}: .*damaged, .*(found|required)"):
        resume(path)


@pytest.mark.parametrize("name", ["theta_hat", "checkpoint"])
def test_wrong_types_beside_tensors_are_told(name):
    path = Path(run()["run_dir"])
    artifacts = path / "artifacts"
    if name == "checkpoint":
        (artifacts / "theta_hat.safetensors").unlink()
        shutil.rmtree("cache")
    tensors, _ = load_tensors(artifacts / f"{name}.safetensors")
    save_tensors(artifacts / f"{name}.safetensors", tensors, {"steps": "many"})
    with pytest.raises(DamagedFile, match=rf"{name}\.safetensors: damaged"):
        resume(path)


@pytest.mark.parametrize("cache", ["file", "file/below", "n" * 300], ids=["file", "below", "long"])
def test_a_cache_folder_of_no_use_costs_the_cache_alone(cache, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / cache))
    assert run()["conditional"]["n"] == 12
    said = capsys.readouterr().err
    assert (
        f"note: not kept for the next run, as {tmp_path / cache / 'metatrain'} is of no use" in said
    )
    assert "METAFORGE_CACHE" in said


def test_a_run_folder_that_cannot_be_written_is_told():
    path = Path(run()["run_dir"])
    (path / ".lock").unlink()
    (path / ".lock").mkdir()
    with pytest.raises(DataError, match="cannot be written: Is a directory"):
        resume(path)


def test_resuming_what_is_no_run_says_so(tmp_path):
    with pytest.raises(DataError, match="not a run folder"):
        resume(tmp_path)


COMMAND = [sys.executable, "-m", "metaforge", "run", "--quiet"]
LONGER = (
    "meta_train.steps=400",
    "condition.steps=20",
    "evaluate.targets=30",
    "evaluate.controls=[random_m, target_only]",
    "meta_train.validate_every=40",
)


def _heed_ctrl_c() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(arguments: list[str], said: str, cache: str) -> subprocess.Popen:
    env = {**os.environ, "METAFORGE_CACHE": cache}
    with Path(said).open("w") as stderr:
        return subprocess.Popen(
            [*COMMAND, *arguments], env=env, stderr=stderr, preexec_fn=_heed_ctrl_c
        )


def begin(recipe: Path, output: str, cache: str) -> subprocess.Popen:
    return start([str(recipe), *LONGER, f"output={output}"], f"{output}.err", cache)


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(load(SMALL).to_yaml())
    return path


def folder(output: str) -> Path | None:
    found = sorted(Path(output).glob("*/env.json"))
    return found[0].parent if found else None


def wait_for(output: str, name: str, process: subprocess.Popen) -> Path:
    while process.poll() is None:
        path = folder(output)
        if path is not None and (path / name).exists():
            return path
        time.sleep(0.01)
    pytest.fail(f"the run ended before {name} was there: {Path(f'{output}.err').read_text()}")


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_gives_the_same_bits(recipe, tmp_path):
    whole = begin(recipe, "whole", str(tmp_path / "cache-a"))
    began = time.perf_counter()
    path = wait_for("whole", "env.json", whole)
    prepared = time.perf_counter() - began
    assert whole.wait(300) == 0
    length = time.perf_counter() - began
    reference = path
    rng = random.Random(0)
    process = begin(recipe, "killed", str(tmp_path / "cache-b"))
    path = wait_for("killed", "env.json", process)
    for _ in range(4):
        time.sleep(rng.uniform(0, 0.6 * (length - prepared)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = start(["--resume", str(path)], "resumed.err", str(tmp_path / "cache-b"))
        time.sleep(prepared)
    assert process.wait(300) == 0
    for name in ("targets.jsonl", "metrics.jsonl"):
        assert (path / name).read_text() == (reference / name).read_text(), name
    ends = [
        without_clock(opened((p / "results.json").read_text()).value) for p in (path, reference)
    ]
    assert ends[0] == ends[1]


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_a_folder_that_resumes(recipe, tmp_path):
    process = begin(recipe, "stopped", str(tmp_path / "cache-c"))
    path = wait_for("stopped", "targets.jsonl", process)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    said = Path("stopped.err").read_text()
    assert process.returncode == 130
    assert f"metaforge run --resume {path}" in said
    assert "Traceback" not in said
    assert json.loads((path / "status.json").read_text())["state"] == "interrupted"
    assert "interrupted during evaluate: by the user" in read(path, "log.txt")
    assert resume(path, quiet=True)["conditional"]["n"] == 30


def test_a_model_that_ends_in_a_softmax_gets_a_hint():
    built = SimpleNamespace(
        source=SimpleNamespace(shape=SimpleNamespace(kind="classification", outputs=5))
    )
    stuck = Progress(curve=[{"step": s, "validation": 0.2, "loss": 1.605} for s in range(4)])
    assert "softmax" in softmax_hint(built, stuck)
    learning = Progress(
        curve=[{"step": s, "validation": 0.2, "loss": 1.6 - 0.2 * s} for s in range(4)]
    )
    assert softmax_hint(built, learning) is None


def test_notes_are_said_once_and_stand_in_the_report():
    path = run("weighting.use=uniform")["run_dir"]
    assert read(path, "log.txt").count("note: uniform does not rank tasks") == 1
    assert render_text(Path(path)).count("note: uniform does not rank tasks") == 1


def test_quiet_says_nothing(capsys):
    metaforge.run(SMALL, quiet=True)
    assert capsys.readouterr() == ("", "")
    metaforge.run(SMALL)
    assert "targets: 12" in capsys.readouterr().err


def test_device_auto_says_what_it_took(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "device        cpu" in read(run("device=auto")["run_dir"], "log.txt")


@pytest.mark.parametrize(
    ("device", "count", "message"),
    [
        ("cuda", 0, "torch sees no cuda device here; use auto"),
        ("cuda:2", 2, "torch sees 2 cuda devices here"),
        ("mps", 0, "torch sees no mps device here"),
    ],
)
def test_a_device_that_is_not_there_is_refused_before_all_else(device, count, message, monkeypatch):
    monkeypatch.setattr("metaforge.recipe.machine.device_problem", lambda device: "")
    monkeypatch.setattr(f"torch.{device.partition(':')[0]}.device_count", lambda: count)
    with pytest.raises(RecipeError, match=message):
        run(f"device={device}")
    assert not Path("runs").exists()


def test_the_header_has_the_kernel_s_options_that_are_in_force():
    kernels = {
        "kernel=gaussian": ("bandwidth median", ["sigma"]),
        "kernel.gamma=50": ("gamma 50.0", ["scale", "sigma", "bandwidth"]),
        "kernel.sigma=0.5": ("gamma 4.0", ["scale", "bandwidth"]),
        "kernel.bandwidth=median": ("bandwidth median, scale 1.0", ["gamma", "sigma"]),
        "kernel=laplace": ("bandwidth median, scale 1.0", ["gamma", "sigma"]),
        "kernel.embedding=mean": ("bandwidth median", ["frequencies", "width"]),
    }
    for override, (told, untold) in kernels.items():
        log = read(run(override, "meta_train.steps=1", "evaluate.targets=2")["run_dir"], "log.txt")
        (line,) = (line for line in log.splitlines() if " kernel   " in line)
        assert told in line, override
        assert not any(f" {name} " in line for name in untold), line


def test_a_control_that_is_left_out_is_accounted_for_below_the_table():
    results = run("weighting.use=uniform", "evaluate.controls=[topm_equal, uniform_bank]")
    text = render_text(Path(results["run_dir"]))
    assert "topm_equal" not in results["controls"]
    assert "note: control topm_equal is left out: uniform does not rank tasks" in text
    assert "note: control uniform_bank is SP itself under uniform" in text


def test_an_oracle_without_any_target_s_group_in_the_bank_is_accounted_for():
    one = ("data.families=[sine, line]", "bank.size=1", "evaluate.targets=2")
    told = "control oracle is left out: no bank task is of the group of any target"
    for seed, is_there in ((0, True), (1, False)):
        results = run(*one, "evaluate.controls=[oracle]", f"seed={seed}")
        assert ("oracle" in results["controls"]) == is_there
        assert (told in results["warnings"]) != is_there


def test_sections_of_plugins_stand_in_the_report(monkeypatch):
    monkeypatch.setattr(
        plugins.host(),
        "report_sections",
        lambda results: [("Heading", f"{results['conditional']['n']} targets")],
    )
    text = render_text(Path(run()["run_dir"]))
    assert "Heading\n12 targets" in text


@pytest.mark.parametrize(
    ("width", "warning"),
    [
        ("kernel.scale=300", "the kernel finds hardly any alike of the bank's tasks"),
        ("kernel.scale=20", None),  # few pairs are alike, but every task has some that are
        ("kernel.gamma=1e-9", "the kernel tells hardly any apart of the bank's tasks"),
        ("kernel.bandwidth=median", None),
    ],
)
def test_a_width_that_does_not_suit_the_bank_is_warned_of(width, warning):
    found = run(width, "meta_train.steps=1")
    told = [line for line in found["warnings"] if line.startswith("the kernel ")]
    assert bool(told) == (warning is not None)
    assert all(line.startswith(warning) for line in told)


@pytest.mark.parametrize(("rate", "told"), [("0.3", True), ("1e-3", False)])
def test_training_that_never_improves_is_warned_of(rate, told):
    found = run("meta_train.steps=4", f"meta_train.optimizer.lr={rate}")
    assert (found["meta_train"]["best_step"] == 0) == told
    never = [line for line in found["warnings"] if "never improved on its initialisation" in line]
    assert bool(never) == told


def test_a_control_of_fewer_targets_tells_how_many_and_its_own_seconds(monkeypatch):
    """Tasks of every other target lack the control, as those without a group do."""
    from metaforge.evaluation import build_arms

    def fewer(recipe, bank, target_id, *rest):
        arms = build_arms(recipe, bank, target_id, *rest)
        return [arm for arm in arms if arm.name != "random_m" or target_id % 2]

    monkeypatch.setattr("metaforge.evaluation.build_arms", fewer)
    found = run("evaluate.controls=[random_m]", "condition.record_at=[0, 6]")
    assert found["curve"]["n"] == {"conditional": 12, "random_m": 6}
    assert "random_m (n = 6)" in render_text(Path(found["run_dir"]))
    timings = [json.loads(line) for line in read(found["run_dir"], "timings.jsonl").splitlines()]
    own = [seconds["random_m"] for seconds in timings if "random_m" in seconds]
    assert found["seconds"]["per_target"]["random_m"] == pytest.approx(np.mean(own))
