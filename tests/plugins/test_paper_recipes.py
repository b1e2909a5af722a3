"""The recipes of the paper's tables, on small files in the form of the released ones."""

from __future__ import annotations

import pytest

import metaforge
from metaforge.recipe import load
from metaforge.recipe.find import shipped_dir

from .leo_embeddings_files import write

RECIPES = sorted(f"paper/{path.stem}" for path in (shipped_dir() / "paper").glob("*.yaml"))
COLUMNS = [(variant, shots) for variant in ("mini", "tiered") for shots in (1, 5)]
QUICK = [
    "bank.size=20",
    "meta_train.steps=2",
    "meta_train.validate_every=2",
    "meta_train.validation_targets=2",
    "meta_train.batch=2",
    "condition.steps=2",
    "condition.batch=2",
    "condition.top_m=5",
    "evaluate.runs=2",
    "evaluate.targets=2",
    "threads=1",
]


@pytest.fixture(autouse=True)
def released_files(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_DATA", str(tmp_path))
    for variant in ("mini", "tiered"):
        write(tmp_path / "embeddings", variant, width=640)


def test_there_are_recipes():
    assert RECIPES == ["paper/table3_leo", "paper/table3_ls", "paper/table3_maml"]


@pytest.mark.parametrize(("variant", "shots"), COLUMNS)
@pytest.mark.parametrize("name", RECIPES)
def test_every_column_is_valid_and_has_the_paper_s_settings(name, variant, shots):
    recipe = load(name, [f"data.variant={variant}", f"data.shots={shots}"]).recipe
    assert recipe.bank.size == 30000
    assert recipe.meta_train.batch == recipe.condition.batch == 12
    for optimizer in (recipe.meta_train.optimizer, recipe.condition.optimizer):
        assert (optimizer.use, optimizer.lr) == ("adam", 1e-4)
        assert (optimizer.clip_value, optimizer.clip_norm) == (0.1, 0.1)
    assert (recipe.condition.steps, recipe.condition.top_m) == (100, 500)
    assert recipe.kernel.options["gamma"] == 50
    assert recipe.weighting.options["lambda"] == 1e-8
    assert (recipe.evaluate.runs, recipe.evaluate.targets) == (50, 200)
    assert recipe.data.options["queries"] == 15


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_from_the_files_to_results(name, tmp_path):
    results = metaforge.run(name, *QUICK, "data.shots=5", f"output={tmp_path}/runs")
    assert results["difference"]["n"] == 4
    assert set(results["controls"]) == {"uniform_bank", "target_only"}


@pytest.mark.parametrize(
    "ablation",
    [
        ["condition.top_m=30000"],
        ["condition.beta1=0"],
        ["condition.beta2=0", "evaluate.controls=[uniform_bank]"],
        ["condition.beta2=2"],
        ["weighting.use=uncertainty"],
        ["kernel.use=laplace"],
        ["kernel.use=linear"],
        ["meta_train.steps=0"],
    ],
    ids=" ".join,
)
def test_the_ablations_that_the_recipe_tells_of_are_valid(ablation):
    load("paper/table3_ls", ablation)
