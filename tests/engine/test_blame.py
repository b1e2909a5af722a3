"""What a plugin's code raises in a run names the plugin; what only watches stops nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import metaforge
from metaforge import discovery
from metaforge.blame import told
from metaforge.cli import main
from metaforge.discovery import Settings
from metaforge.errors import DataError, MetaforgeError, PluginError
from metaforge.recipe.dialect import dump
from tests.small import SMALL

PLUGIN = """
import sys
import torch
from metaforge import hookimpl
from metaforge.components import Component
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions

class Faulty(Maml):
    def losses(self, params, tasks, **rest):
        LOSSES
        return super().losses(params, tasks, **rest)

    def predict(self, params, support, query_x):
        PREDICT
        return super().predict(params, support, query_x)

@hookimpl
def metaforge_inner_algorithms():
    return [Component("inner_algorithm", "faulty", "faulty:Faulty", options=MamlOptions)]

@hookimpl
def metaforge_target_evaluated(record):
    TARGET

@hookimpl
def metaforge_report_sections(results):
    SECTIONS
"""


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    yield
    discovery.configure(None)
    sys.modules.pop("faulty", None)


def plugin(**bodies: str) -> None:
    text = PLUGIN
    for place in ("LOSSES", "PREDICT", "TARGET", "SECTIONS"):
        text = text.replace(place, bodies.get(place.lower(), "pass"))
    sys.modules.pop("faulty", None)
    Path("faulty.py").write_text(text)
    discovery.configure(Settings(files=(Path("faulty.py").absolute(),)))


def run(*changes: str) -> dict:
    inner = {**SMALL["inner"], "use": "faulty", "backend": "vectorized"}
    return metaforge.run({**SMALL, "inner": inner}, *changes, quiet=True)


def state() -> dict:
    (folder,) = Path("runs").iterdir()
    return json.loads((folder / "status.json").read_text())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fault", ["1 / 0", "sys.exit(0)", "torch.ones(2) @ torch.ones(3)"])
def test_an_error_in_phase_3_names_plugin_function_and_target(fault, workers):
    plugin(losses=f"{fault} if len(tasks) == 5 else None")  # four of the bank and its own
    with pytest.raises(PluginError) as caught:
        run(f"evaluate.workers={workers}")
    said = str(caught.value)
    assert said.startswith("plugin 'faulty' (faulty.py): Faulty.losses failed (conditioning target")
    assert "step 0" in said
    assert state()["state"] == "failed"


def test_an_error_in_phase_1_names_its_step():
    plugin(losses="1 / 0")
    with pytest.raises(PluginError, match=r"Faulty.losses failed \(.*step 0\): ZeroDivisionError"):
        run()


def test_losses_of_another_shape_are_refused_at_once():
    plugin(losses="return super().losses(params, tasks, **rest).mean()")
    with pytest.raises(PluginError, match=r"losses of 4 tasks have shape \[\]; expected one loss"):
        run()


def test_leaving_the_program_is_no_success(capsys):
    plugin(predict="sys.exit(0)")
    inner = {**SMALL["inner"], "use": "faulty", "backend": "vectorized"}
    Path("recipe.yaml").write_text(dump({**SMALL, "inner": inner}))
    assert main(["--plugin", "faulty.py", "run", "recipe.yaml", "--quiet"]) == PluginError.exit_code
    assert "Faulty.predict failed" in capsys.readouterr().err


def test_an_observer_that_fails_is_told_once_and_changes_nothing(capsys):
    plugin()
    sound = run()
    plugin(target="raise ValueError('boom')")
    found = run()
    line = "plugin 'faulty' (faulty.py): metaforge_target_evaluated(task_id=0) failed: ValueError"
    (note,) = [note for note in found["notes"] if note.startswith(line)]
    assert note.endswith("it heard no more of this run")
    assert found["conditional"] == sound["conditional"]


def test_a_section_that_fails_costs_no_result(capsys):
    plugin(sections="return ['no section']")
    assert run()["conditional"]["n"] == 12


def test_the_engines_own_error_is_blamed_on_nobody(monkeypatch):
    plugin()
    monkeypatch.setattr("metaforge.results.compute", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run()


def test_a_lack_of_memory_is_told():
    said = told(MemoryError("Unable to allocate 7.28 TiB"))
    assert isinstance(said, DataError)
    assert "not enough memory: MemoryError: Unable to allocate 7.28 TiB; take smaller" in str(said)
    torchs = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")
    assert isinstance(told(torchs), DataError)
    other = RuntimeError("boom")
    assert told(other) is other
    ours = MetaforgeError("said")
    assert told(ours) is ours


def test_a_run_too_large_for_any_memory_ends_in_one_message():
    """Eight terabytes at once, which no system grants: nothing is allocated, nothing killed."""
    with pytest.raises(DataError, match="not enough memory"):
        metaforge.run(SMALL, "condition.batch=1000000", "condition.steps=1000000", quiet=True)
