"""``validate`` as the value of an option, and the trials that come of a recipe. Torch-free."""

from __future__ import annotations

import subprocess
import sys

import pytest

import metaforge
from metaforge.cli.validate import described
from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.trials import Trials
from tests.small import SMALL

SCALES, LAMBDAS = (0.25, 1.0, 4.0, 16.0), (1e-8, 1e-4, "n^-1/2", 1.0, 100.0)
BOTH = ("kernel.bandwidth=validate", "weighting.lambda=validate")


def test_what_says_validate_moves_to_the_grid():
    resolved = load(SMALL, BOTH)
    recipe = resolved.recipe
    assert recipe.select.grid == {"kernel.scale": SCALES, "weighting.lambda": LAMBDAS}
    assert recipe.select.targets == 50
    assert recipe.kernel.options["bandwidth"] == "median"
    assert recipe.weighting.options["lambda"] == "n^-1/2"
    text = described(resolved)
    assert "20 on 8, 7 on 20, 3 on 50 targets: 334 conditionings of 6 steps" in text
    assert "kernel.scale of [0.25, 1.0, 4.0, 16.0]" in Trials(recipe).told()
    assert "kernel.bandwidth: validate stands for select.grid.kernel.scale" in text


def test_the_complete_recipe_is_the_same_selection(tmp_path):
    resolved = load(SMALL, BOTH)
    path = tmp_path / "resolved.yaml"
    path.write_text(resolved.to_yaml())
    assert load(path).recipe == resolved.recipe


def test_the_recipe_s_own_values_and_settings_stay():
    given = {
        **SMALL,
        "weighting": {"lambda": "validate"},
        "select": {"grid": {"weighting.lambda": [1.0, 2.0], "condition.top_m": [5]}, "targets": 9},
    }
    select = load(given, ["kernel.bandwidth=validate"]).recipe.select
    assert select.targets == 9
    assert select.grid["weighting.lambda"] == (1.0, 2.0)
    assert select.grid["condition.top_m"] == (5,)
    assert select.grid["kernel.scale"] == SCALES


def test_beside_a_preset_the_width_stays_free():
    resolved = load(SMALL, ["preset=paper", *BOTH])
    assert resolved.recipe.kernel.options["sigma"] is None
    trial = resolved.with_values({"kernel.scale": 4.0, "weighting.lambda": 1.0}).recipe
    assert trial.kernel.options["scale"] == 4.0
    assert trial.kernel.options["sigma"] is None


REFUSED = {
    "beside its own values": (
        ["kernel.bandwidth=validate", "kernel.scale=2"],
        "kernel: scale is what bandwidth: validate chooses",
    ),
    "beside another width": (
        ["kernel.bandwidth=validate", "kernel.gamma=2"],
        "kernel: gamma and bandwidth each set the width",
    ),
    "of what phase 1 learns by": (
        ["kernel.bandwidth=validate", "weighting.use=uncertainty"],
        "select.grid.kernel.scale: weighting 'uncertainty' is learned in phase 1",
    ),
    "as a value to choose": (
        ["select.grid.kernel.bandwidth=[median, validate]"],
        'select.grid.kernel.bandwidth: "validate": validate asks for a choice',
    ),
    "as a value to choose, of the option itself": (
        ["select.grid.weighting.lambda=[validate, 1]"],
        'select.grid.weighting.lambda: "validate": validate asks for a choice',
    ),
    "of a kernel that has no width": (
        ["kernel.bandwidth=validate", "select.grid.kernel.use=[gaussian, linear]"],
        'select.grid.kernel.use: "linear": kernel.bandwidth: unknown key',
    ),
    "of no such option": (["weighting.use=uniform", "weighting.lambda=validate"], "weighting."),
}


@pytest.mark.parametrize(("overrides", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(overrides, message):
    with pytest.raises(RecipeError) as caught:
        load(SMALL, overrides)
    assert message in "\n".join(f"{p.path}: {p.message}" for p in caught.value.problems)


def test_a_problem_stands_at_the_line_that_says_validate(tmp_path):
    path = tmp_path / "mine.yaml"
    text = load(SMALL, ["weighting.use=uncertainty"]).to_yaml()
    path.write_text(text.replace("bandwidth: null", "bandwidth: validate"))
    lines = path.read_text().splitlines()
    line = next(i for i, line in enumerate(lines, start=1) if "bandwidth: validate" in line)
    with pytest.raises(RecipeError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("task_kernel", "gaussian", {"bandwidth": "validate"}),
        ("task_weighting", "tasml", {"lambda": "validate"}),
    ],
)
def test_outside_of_a_run_it_is_refused(kind, name, options):
    with pytest.raises(RecipeError, match="says validate, which only a run can heed"):
        metaforge.create(kind, name, **options)


SCALED = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl
from metaforge.options import Options, Validated


class Power(Options):
    power: float | str = 1.0

    def validated(self):
        if self.power == "validate":
            return Validated({"power": 1.0}, {"power": (0.5, 2.0)})


@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", "power", "fakeplug_parts:Part", Power, "of a plugin")]
"""


def test_any_plugin_s_options_may_say_it(fakes, write_recipe):
    fakes.plugin("power", SCALED)
    resolved = load(write_recipe(), ["kernel.use=power", "kernel.power=validate"])
    assert resolved.recipe.select.grid == {"kernel.power": (0.5, 2.0)}
    assert resolved.recipe.kernel.options == {"power": 1.0}


def test_kernels_vary_slowest_whatever_the_order_of_the_grid():
    grid = {
        "condition.top_m": [3, 5],
        "weighting.lambda": [1, 2],
        "condition.steps": [9, 3],
        "kernel.scale": [1, 4],
    }
    trials = Trials(load({**SMALL, "select": {"grid": grid}}).recipe)
    assert trials.steps == [3, 9]
    keys = [tuple(found.values()) for found in trials.combinations]
    assert keys == [(s, r, m) for s in (1, 4) for r in (1, 2) for m in (3, 5)]
    assert list(trials.combinations[0]) == ["kernel.scale", "weighting.lambda", "condition.top_m"]


def budgeted(budget: int, seed: int = 0) -> Trials:
    return Trials(load(SMALL, [*BOTH, f"select.budget={budget}", f"seed={seed}"]).recipe)


def test_a_budget_draws_some_combinations_by_the_seed_alone():
    whole, some = Trials(load(SMALL, BOTH).recipe), budgeted(200)
    assert some.conditionings <= 200 < whole.conditionings
    assert [one for one in whole.combinations if one in some.combinations] == some.combinations
    assert len(some.combinations) == some.count < some.in_grid == 20
    assert budgeted(200).combinations == some.combinations
    assert budgeted(200, seed=1).combinations != some.combinations
    assert budgeted(334).combinations == whole.combinations


def test_a_budget_for_part_of_the_grid_is_told():
    text = described(load(SMALL, [*BOTH, "select.budget=200"]))
    assert "select.budget: 200 conditionings: " in text
    assert "of the grid's 20 combinations are tried" in text
    assert "select.budget: 334" not in described(load(SMALL, [*BOTH, "select.budget=334"]))


def test_a_budget_for_no_choice_says_which_would_do():
    with pytest.raises(RecipeError, match=r"select\.budget: 2 of .* take 100 conditionings"):
        load(SMALL, [*BOTH, "select.budget=99"])
    assert budgeted(100).count == 2
    steps = ["select.grid.condition.steps=[1, 2]"]
    with pytest.raises(RecipeError, match=r"select\.budget: 1 of .* take 50 conditionings"):
        load(SMALL, [*steps, "select.budget=49"])
    assert Trials(load(SMALL, [*steps, "select.budget=50"]).recipe).combinations == [{}]


def test_a_grid_beyond_all_use_is_refused():
    many = [f"select.grid.condition.{key}={list(range(1, 300))}" for key in ("top_m", "beta1")]
    with pytest.raises(RecipeError, match="26,730,899 combinations, 1,000,000 at most"):
        load(SMALL, [*many, f"select.grid.condition.beta2={list(range(1, 300))}"])


def test_validate_imports_no_torch(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(load(SMALL, [*BOTH, "select.budget=200"]).to_yaml())
    code = (
        "import sys; from metaforge.cli import main; "
        f"assert main(['validate', {str(path)!r}]) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
