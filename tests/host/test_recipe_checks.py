"""Problems between sections, each with what to do."""

from __future__ import annotations

import os

import pytest

from metaforge.cli.validate import described
from metaforge.errors import PluginError, RecipeError
from metaforge.recipe import load
from metaforge.recipe.checks import has_groups

CHECKS = {
    "negative": (
        ["condition.sampling=proportional", "condition.negative=keep"],
        ["condition.sampling: proportional draws tasks by weight, which negative weights"],
    ),
    "unread alpha": (
        ["condition.sampling=proportional", "condition.weights_in_loss=topm-uniform"],
        ["condition.sampling: proportional draws tasks by alpha, topm-uniform says not"],
    ),
    "nothing to minimise": (
        ["condition.beta1=0", "condition.beta2=0"],
        ["condition: beta1 and beta2 are both 0"],
    ),
    "moments of another rule": (
        ["condition.optimizer.use=sgd", "condition.optimizer_state=meta-train"],
        ["condition.optimizer_state: the moments of adam are none of sgd"],
    ),
    "late record": (
        ["condition.record_at=[0, 20, 21, 30]"],
        ["condition.record_at: step 21 comes after the last, condition.steps is 20"],
    ),
    "train": (["evaluate.split=train"], ["evaluate.split: targets from the training split"]),
    "selected on val": (
        ["evaluate.split=val", "select.grid.condition.top_m=[3]"],
        ["evaluate.split: selection uses the validation targets already"],
    ),
    "target_only": (
        ["evaluate.controls=[target_only]", "condition.beta2=0"],
        ["evaluate.controls: target_only needs a target term"],
    ),
    "control twice": (
        ["evaluate.controls=[random_m, random_m]"],
        ["evaluate.controls: random_m is listed twice"],
    ),
    "momentum": (
        ["meta_train.optimizer.momentum=0.9"],
        ["meta_train.optimizer.momentum: only sgd has it"],
    ),
    "eps": (
        ["condition.optimizer.use=sgd", "condition.optimizer.eps_convention=tf1"],
        ["condition.optimizer.eps_convention: only adam has it"],
    ),
    "grid of a section": (
        ["select.grid.condition=[{steps: 3}]"],
        ["select.grid.condition: is a section: name its options, such as condition.steps"],
    ),
    "grid of a part and the whole": (
        ["select.grid.kernel=[laplace]", "select.grid.kernel.sigma=[1.0]"],
        ["select.grid.kernel.sigma: is a part of kernel, which is there too: give one"],
    ),
    "numbers beyond all use": (
        ["bank.size=10000000000", "threads=100000", "meta_train.batch=100000000"],
        ["threads: ", "bank.size: should be less than or equal to 1000000000", "meta_train.batch"],
    ),
    "infinite options": (
        ["kernel.gamma=.inf", "inner.lr=.inf"],
        ["inner.lr: should be a finite number", "kernel.gamma: should be a finite number"],
    ),
    "output of no path": (['output="a\\0b"'], ["output: holds a NUL character"]),
    "grid of no key": (
        ["select.grid.condition.topm=[3]"],
        ["select.grid.condition.topm: 3: condition.topm: unknown key; did you mean 'top_m'?"],
    ),
    "grid of no option": (
        ["select.grid.kernel.sigma=[3]"],
        ["select.grid.kernel.sigma: 3: kernel.sigma: unknown key"],
    ),
    "grid value": (
        ["select.grid.condition.top_m=[3, 0, x]"],
        [
            "select.grid.condition.top_m: 0: condition.top_m: should be greater than 0",
            'select.grid.condition.top_m: "x": condition.top_m: should be a valid integer',
        ],
    ),
    "grid of a component": (
        ["select.grid.kernel.use=[laplace, lapalce]"],
        ['select.grid.kernel.use: "lapalce": kernel.use: unknown task_kernel'],
    ),
    "grid of data": (
        ["select.grid.data.ways=[3]"],
        ["select.grid.data.ways: only options of kernel, weighting, condition can be selected"],
    ),
    "grid that combines badly": (
        ["select.grid.kernel.use=[gaussian, laplace]", "select.grid.kernel.gamma=[1, 2]"],
        ['select.grid: {"kernel.use": "laplace", "kernel.gamma": 1}: kernel.gamma: unknown key'],
    ),
    "grid value across sections": (
        ["condition.sampling=proportional", "select.grid.condition.negative=[clip, keep]"],
        ['select.grid.condition.negative: "keep": proportional draws tasks by weight'],
    ),
    "grid value that a control refuses": (
        ["evaluate.controls=[target_only]", "select.grid.condition.beta2=[0, 1]"],
        ["select.grid.condition.beta2: 0: target_only needs a target term"],
    ),
    "grid value of another optimiser": (
        ["select.grid.condition.optimizer.momentum=[0, 0.9]"],
        ["select.grid.condition.optimizer.momentum: 0.9: only sgd has it"],
    ),
    "grid value before a recorded step": (
        ["condition.record_at=[15]", "select.grid.condition.steps=[10, 20]"],
        ["select.grid.condition.steps: 10: step 15 comes after the last"],
    ),
    "grid that combines to nothing": (
        ["select.grid.condition.beta1=[0, 1]", "select.grid.condition.beta2=[0, 1]"],
        ['select.grid: {"condition.beta1": 0, "condition.beta2": 0}: beta1 and beta2'],
    ),
    "what is wrong without the grid too is said once": (
        ["meta_train.optimizer.momentum=0.9", "select.grid.condition.top_m=[3, 4]"],
        ["meta_train.optimizer.momentum: only sgd has it"],
    ),
    "grid of nothing": (
        ["select={grid: {}}"],
        ["select.grid: it is empty, so that nothing is chosen: give a key and its values"],
    ),
    "empty grid": (
        ["select.grid.condition.top_m=[]"],
        ["select.grid: condition.top_m: give at least one value"],
    ),
}


@pytest.mark.parametrize(("overrides", "messages"), CHECKS.values(), ids=CHECKS)
def test_refused(fakes, write_recipe, overrides, messages):
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), overrides)
    problems = caught.value.problems
    assert len(problems) == len(messages)
    for problem, message in zip(problems, messages, strict=True):
        assert f"{problem.path}: {problem.message}".startswith(message)
        assert problem.where.startswith("override ") or problem.path == "condition"
    assert caught.value.exit_code == 2


FINE = [
    ["condition.sampling=proportional"],
    ["condition.negative=keep"],
    ["condition.beta1=0", "evaluate.controls=[target_only]"],
    ["condition.record_at=[0, 20]"],
    ["condition.top_m=100000"],
    ["evaluate.split=val"],
    ["condition.optimizer.use=sgd", "condition.optimizer.momentum=0.9"],
    ["meta_train.optimizer.eps_convention=tf1"],
    ["condition.steps=0", "condition.beta1=0", "condition.beta2=0"],
    ["select.grid.kernel.gamma=[1, 1e-4]", "select.grid.weighting.lambda=[1e-8, n^-1/2]"],
    ["select.grid.kernel.use=[gaussian, laplace]"],
    ["output=not/made/yet"],
]


@pytest.mark.parametrize("overrides", FINE, ids=map(" ".join, FINE))
def test_admitted(fakes, write_recipe, overrides):
    assert load(write_recipe(), overrides).problems() == []


NO_GROUPS = "evaluate.controls: oracle recalls the bank tasks of a target's own group"


@pytest.mark.parametrize("groups", ["False", "'fakeplug_groups:groups'"], ids=["no", "asked"])
def test_oracle_without_groups(fakes, write_recipe, groups):
    fakes.module("fakeplug_groups", "def groups(options): return options.shuffle")
    source = (fakes.path / "fakeplug.py").read_text()
    check = 'check="fakeplug_checks:check"'
    fakes.module("fakeplug", source.replace(check, f"{check}, groups={groups}"))
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["evaluate.controls=[oracle]"])
    assert NO_GROUPS in str(caught.value)
    assert "'glyphs' have no groups" in str(caught.value)
    assert caught.value.exit_code == 2
    assert load(write_recipe(), ["evaluate.controls=[random_m]"]).problems() == []
    if groups != "False":
        with_groups = ["evaluate.controls=[oracle]", "data.shuffle=true"]
        assert load(write_recipe(), with_groups).problems() == []


def test_oracle_on_data_that_cannot_tell_is_left_to_the_run(fakes, write_recipe):
    resolved = load(write_recipe(), ["evaluate.controls=[oracle]"])
    assert has_groups(resolved) is None
    assert "note: oracle needs tasks with groups; whether 'glyphs' has" in described(resolved)
    assert "oracle needs" not in described(load(write_recipe()))


def test_a_failing_answer_on_groups_names_the_data_set(fakes, write_recipe):
    fakes.module("fakeplug_groups", "def groups(options): 1 / 0")
    source = (fakes.path / "fakeplug.py").read_text()
    check = 'check="fakeplug_checks:check"'
    fakes.module("fakeplug", source.replace(check, f"{check}, groups='fakeplug_groups:groups'"))
    with pytest.raises(PluginError, match=r"dataset 'glyphs': fakeplug_groups:groups failed: Zero"):
        load(write_recipe(), ["evaluate.controls=[oracle]"])


def test_file_in_the_way_of_the_output(fakes, write_recipe, tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(RecipeError, match=r"output: .*runs is a file, a folder is needed"):
        load(write_recipe(), [f"output={tmp_path / 'runs' / 'deep'}"])


def test_output_that_cannot_be_written(fakes, write_recipe, tmp_path, monkeypatch):
    # Root may write anywhere, so the answer of the system is set here.
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    with pytest.raises(RecipeError, match=f"output: {tmp_path} is not writable"):
        load(write_recipe(), [f"output={tmp_path / 'new' / 'runs'}"])
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_unset_variable_in_the_output(fakes, write_recipe, monkeypatch):
    monkeypatch.delenv("METAFORGE_NOWHERE", raising=False)
    with pytest.raises(RecipeError, match=r"output: \$METAFORGE_NOWHERE is not set"):
        load(write_recipe(), ["output=$METAFORGE_NOWHERE/runs"])


def test_a_torch_without_cuda_is_known_by_its_version(fakes, write_recipe, monkeypatch):
    versions = {"torch": "2.13.0+cpu"}
    monkeypatch.setattr("metaforge.recipe.machine.metadata.version", versions.__getitem__)
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["device=cuda:1"])
    (problem,) = caught.value.problems
    assert problem.path == "device"
    assert problem.message.startswith(
        "'cuda:1' asked for, but the torch installed here, 2.13.0+cpu"
    )
    assert load(write_recipe(), ["device=auto"]).problems() == []
    versions["torch"] = "2.13.0+cu128"
    told = described(load(write_recipe(), ["device=cuda:1"]))
    assert "note: whether this machine has cuda:1, the run will say" in told


def test_mps_is_macos_s_alone(fakes, write_recipe, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(RecipeError, match="device: 'mps' asked for, which macOS alone has"):
        load(write_recipe(), ["device=mps"])
    monkeypatch.setattr("sys.platform", "darwin")
    assert load(write_recipe(), ["device=mps"]).problems() == []


HOOK = """
from metaforge.errors import Problem
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_check_recipe(recipe):
    return [Problem("condition.top_m", "7 is unlucky")] * (recipe.condition.top_m == 7)
"""


def test_grid_values_pass_the_checks_of_plugins(fakes, write_recipe):
    fakes.plugin("luck", HOOK)
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["select.grid.condition.top_m=[6, 7]"])
    (problem,) = caught.value.problems
    assert problem.path == "select.grid.condition.top_m"
    assert problem.message == "7: condition.top_m: 7 is unlucky"
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["condition.top_m=7", "select.grid.kernel.gamma=[1, 2]"])
    assert [problem.path for problem in caught.value.problems] == ["condition.top_m"]


def test_grid_values_pass_the_checks_of_their_components(fakes, write_recipe):
    fakes.module(
        "fakeplug_widths", "def check(options, context):\n    return ['wide'] * (options.gamma > 5)"
    )
    source = (fakes.path / "fakeplug.py").read_text()
    given = 'Gaussian, "gaussian")'
    fakes.module(
        "fakeplug", source.replace(given, 'Gaussian, "gaussian", check="fakeplug_widths:check")')
    )
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["select.grid.kernel.gamma=[1, 6]"])
    (problem,) = caught.value.problems
    assert problem.message == "6: kernel: wide"


def declared(fakes, name: str, facts: str) -> None:
    """The fake component's plugin says more of it."""
    source = (fakes.path / "fakeplug.py").read_text()
    assert name in source
    fakes.module("fakeplug", source.replace(name, f"{name[:-1]}, {facts})"))


LEARNED = ["weighting.lambda", "kernel.gamma", "weighting.use"]


@pytest.mark.parametrize("key", LEARNED)
def test_what_a_learned_weighting_depends_on_cannot_be_selected(fakes, write_recipe, key):
    declared(fakes, 'Tasml, "ridge scores")', "learned=True")
    values = "[tasml, uniform]" if key.endswith("use") else "[1, 2]"
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), [f"select.grid.{key}={values}", "select.grid.condition.top_m=[3]"])
    (problem,) = caught.value.problems
    assert problem.path == f"select.grid.{key}"
    assert problem.message.startswith("weighting 'tasml' is learned in phase 1")
    assert load(write_recipe(), ["select.grid.condition.top_m=[3, 4]"]).problems() == []


def test_a_learned_weighting_cannot_be_selected_itself(fakes, write_recipe):
    declared(fakes, 'Options, "all equal")', "learned=True")
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["select.grid.weighting.use=[tasml, uniform]"])
    (problem,) = caught.value.problems
    assert problem.message.startswith("\"uniform\": weighting 'uniform' is learned in phase 1")


def test_an_algorithm_that_does_not_serve_the_tasks(fakes, write_recipe):
    declared(fakes, 'Ls, "ridge head")', "tasks=('classification',)")
    declared(fakes, 'check="fakeplug_checks:check")', "tasks=('regression',)")
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["inner=ls"])
    (problem,) = caught.value.problems
    assert problem.path == "inner"
    assert problem.message.startswith("ls serves classification alone, and the tasks of 'glyphs'")
    assert load(write_recipe(), ["inner=maml"]).problems() == []


def test_data_that_do_not_say_their_kind_of_tasks_are_left_to_the_run(fakes, write_recipe):
    declared(fakes, 'Ls, "ridge head")', "tasks=('classification',)")
    assert load(write_recipe(), ["inner=ls"]).problems() == []


def test_a_recipe_on_data_without_groups_leaves_its_oracle_out(fakes, write_recipe):
    """With a note; one that is asked for beside the data is a fault."""
    fakes.module("fakeplug_groups", "def groups(options): return options.shuffle")
    declared(fakes, 'check="fakeplug_checks:check")', "groups='fakeplug_groups:groups'")
    grouped = "data: {use: glyphs, shuffle: true}\ninner: maml\n"
    recipe = write_recipe(f"{grouped}evaluate: {{controls: [random_m, oracle]}}\n")
    assert load(recipe).recipe.evaluate.controls == ("random_m", "oracle")
    other = load(recipe, ["data.shuffle=false"])
    assert other.recipe.evaluate.controls == ("random_m",)
    (note,) = other.notes
    assert note.startswith("control oracle is left out: tasks of 'glyphs' have no groups here")
    with pytest.raises(RecipeError, match="'glyphs' have no groups"):
        load(recipe, ["data.shuffle=false", "evaluate.controls=[oracle]"])
