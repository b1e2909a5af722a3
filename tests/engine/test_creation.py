"""Components that are not what their contract or their plugin says stop a run at its start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import metaforge
from metaforge import registry
from metaforge.components import Component, Context
from metaforge.contracts import TaskKernel, Tracker
from metaforge.creation import create
from metaforge.errors import PluginError, RecipeError
from metaforge.options import Choice
from metaforge_kernels.gaussian import Gaussian
from metaforge_leo.algorithm import Leo
from metaforge_maml.algorithm import Maml
from metaforge_sinusoids.source import Sinusoids
from metaforge_weightings.tasml import Tasml
from metaforge_weightings.uncertainty import Uncertainty
from metaforge_weightings.uniform import Uniform
from tests.small import SMALL


class HalfAKernel(TaskKernel):
    def signature(self, tasks): ...


class NoKernel:
    """Has what phases before scoring ask for, by chance."""

    name, reads = "none", "support"

    def __init__(self, options, context):
        self.options = options

    def fit(self, sample, generator): ...


class NoTracker:
    def __init__(self, options, context): ...

    run_started = meta_step = target_evaluated = Tracker.run_started


class NotLearned(Uniform):
    learned = True


class Narrow(Maml):
    tasks = frozenset({"classification"})


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    for stage in ("_curve", "_tensor"):  # of the data: no task is drawn
        monkeypatch.setattr(Sinusoids, stage, None)


@pytest.fixture
def offer(monkeypatch):
    """Have a component's name mean another class, and its plugin say other things of it."""

    def put(kind: str, name: str, target: type, **facts) -> None:
        host = registry.host()
        every = {component.key: (component, plugin) for component, plugin in host.components()}
        _, plugin = every["task_kernel", "laplace"]
        component, plugin = every.get((kind, name), (Component(kind, name, "a:b"), plugin))
        changed = replace(component, target=f"{__name__}:{target.__name__}", **facts)
        offered = tuple({**every, (kind, name): (changed, plugin)}.values())
        monkeypatch.setattr(type(host), "components", lambda self: offered)

    return put


def refused(error: type[Exception], message: str, *overrides: str) -> None:
    with pytest.raises(error, match=message):
        metaforge.run(SMALL, *overrides)
    (folder,) = Path("runs").iterdir()
    assert not (folder / "artifacts" / "theta_hat.safetensors").exists()


def test_an_abstract_kernel(offer):
    offer("task_kernel", "laplace", HalfAKernel)
    refused(
        PluginError, "abstract class HalfAKernel with abstract methods diag, gram", "kernel=laplace"
    )


def test_an_abstract_kernel_among_those_that_selection_tries(offer):
    offer("task_kernel", "laplace", HalfAKernel)
    grid = "select.grid.kernel.use=[gaussian, laplace]"
    refused(PluginError, "abstract class HalfAKernel with abstract methods diag, gram", grid)


def test_a_kernel_that_lacks_a_part_of_its_contract(offer):
    offer("task_kernel", "laplace", NoKernel)
    told = (
        r"NoKernel lacks describe, diag, .*; expected a subclass of metaforge.contracts.TaskKernel"
    )
    refused(PluginError, told, "kernel=laplace")


def test_a_tracker_that_would_fail_at_the_end(offer):
    offer("tracker", "mine", NoTracker)
    refused(PluginError, "NoTracker lacks run_finished", "trackers=[{use: mine}]")


SAID = {
    "learned": ("task_weighting", "uniform", NotLearned, "learned = True, .* says False"),
    "tasks": (
        "inner_algorithm",
        "maml",
        Narrow,
        r"tasks = frozenset.* says \('classification', 'reg",
    ),
}


@pytest.mark.parametrize(("kind", "name", "target", "message"), SAID.values(), ids=SAID)
def test_a_class_that_is_not_what_its_plugin_says(offer, kind, name, target, message):
    offer(kind, name, target)
    section = {"task_weighting": "weighting", "inner_algorithm": "inner"}[kind]
    refused(PluginError, message, f"{section}.use={name}")


def test_what_a_plugin_does_not_say_the_run_finds(offer):
    offer("inner_algorithm", "maml", Narrow, tasks=None)
    refused(RecipeError, "inner: maml serves classification alone, and the tasks of 'sinusoids'")


@pytest.mark.parametrize(
    ("base", "grid"),
    [
        ("uniform", "select.grid.kernel.scale=[1, 2]"),
        ("uniform", "select.grid.weighting.use=[uniform, tasml]"),
        ("tasml", "select.grid.weighting.use=[tasml, uniform]"),
    ],
)
def test_a_learned_weighting_that_does_not_say_so_beside_selection(offer, base, grid):
    offer("task_weighting", "uniform", NotLearned, learned=None)
    words = (f"weighting.use={base}", grid, "kernel.bandwidth=median")
    refused(RecipeError, "select.grid: weighting 'uniform' is learned in phase 1", *words)


def test_built_in_plugins_say_what_their_classes_are():
    for kind, name, target in (
        ("task_weighting", "tasml", Tasml),
        ("task_weighting", "uniform", Uniform),
        ("task_weighting", "uncertainty", Uncertainty),
    ):
        component = registry.get(kind, name)
        said = (component.target_specific, component.learned)
        assert said == (target.target_specific, target.learned)
    for component, _ in registry.host().components():
        if component.kind == "inner_algorithm":
            assert set(component.tasks) == component.load().tasks, component.name
    assert registry.get("inner", "leo").tasks == tuple(Leo.tasks)
    assert registry.get("kernel", "gaussian").load() is Gaussian


# -- signatures --------------------------------------------------------------------------------


class OtherFit(Uniform):
    def fit(self, gram, groups):
        return super().fit(gram, groups)


class OtherWeights(Uniform):
    def weights(self, state, cross):
        return super().weights(state, cross, None)


class OtherNames(Uniform):
    def fit(self, bank, numbers, *, kind="classification", more=1):
        return super().fit(bank, numbers, kind=kind)


@pytest.mark.parametrize(("target", "name"), [(OtherFit, "fit"), (OtherWeights, "weights")])
def test_a_method_that_cannot_be_called_as_the_contracts_is_refused(offer, target, name):
    offer("task_weighting", "uniform", target)
    told = rf"{target.__name__}: its {name}\(.*cannot be called as the contract's, {name}\(self"
    refused(PluginError, told, "weighting.use=uniform")


def test_a_method_with_other_names_and_more_options_serves(offer):
    offer("task_weighting", "uniform", OtherNames)
    made = create("task_weighting", Choice(use="uniform"), Context())
    assert isinstance(made, OtherNames)
