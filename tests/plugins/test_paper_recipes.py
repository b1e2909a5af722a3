"""The recipes of the paper's tables, on small files in the form of the released ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import metaforge
from metaforge.comparison.grid import expand, parse_over
from metaforge.recipe import load
from metaforge.recipe.find import shipped_dir
from metaforge.recipe.published import matching

from .leo_embeddings_files import write

EVERY = sorted(f"paper/{path.stem}" for path in (shipped_dir() / "paper").glob("*.yaml"))
RECIPES = [name for name in EVERY if "table3" in name]
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
def data_files(tmp_path, monkeypatch):
    """Small files in the form of those that the recipes read."""
    monkeypatch.setenv("METAFORGE_DATA", str(tmp_path))
    for variant in ("mini", "tiered"):
        write(tmp_path / "embeddings", variant, width=640)
    write_cifar_fs(tmp_path / "cifarfs_resnet20_embeddings.npz")


def write_cifar_fs(path: Path) -> None:
    """20 classes of 30 rows, in 4 superclasses."""
    values = np.random.default_rng(0)
    np.savez(
        path,
        X=np.abs(values.normal(size=(600, 64))).astype(np.float16),
        y=np.repeat(np.arange(20), 30),
        class_names=[f"class {i}" for i in range(20)],
        superclass_names=[f"superclass {i}" for i in range(4)],
        class_superclass=np.arange(20) % 4,
        cifarfs_split=np.repeat([0, 1, 2], [10, 5, 5]),
    )


def test_there_are_recipes():
    tables = ["paper/table3_leo", "paper/table3_ls", "paper/table3_maml"]
    assert ["paper/bank_size", "paper/cifar_fs", "paper/steps", *tables] == EVERY


@pytest.mark.parametrize(("variant", "shots"), COLUMNS)
@pytest.mark.parametrize("name", RECIPES)
def test_every_column_is_valid_and_has_the_paper_s_settings(name, variant, shots):
    recipe = load(name, [f"data.variant={variant}", f"data.shots={shots}"]).recipe
    assert recipe.bank.size == 30000
    assert recipe.meta_train.batch == recipe.condition.batch == 12
    for optimizer in (recipe.meta_train.optimizer, recipe.condition.optimizer):
        assert (optimizer.use, optimizer.lr) == ("adam", 1e-4)
        assert (optimizer.clip_value, optimizer.clip_norm) == (0.1, 0.1)
        assert optimizer.eps_convention == "tf1"
    assert (recipe.condition.steps, recipe.condition.top_m) == (100, 500)
    assert recipe.condition.beta1 == recipe.condition.beta2 == 1
    assert (recipe.condition.weights_in_loss, recipe.condition.negative) == ("alpha", "clip")
    assert recipe.condition.optimizer_state == "fresh"
    assert recipe.kernel.use == "gaussian"
    options = recipe.kernel.options
    assert (options["gamma"], options["sigma"], options["signature"]) == (50, None, "support")
    assert recipe.weighting.options["lambda"] == 1e-8
    assert (recipe.evaluate.runs, recipe.evaluate.targets) == (50, 200)
    assert recipe.data.options["queries"] == 15


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_from_the_files_to_results(name, tmp_path):
    results = metaforge.run(name, *QUICK, "data.shots=5", f"output={tmp_path}/runs")
    assert results["difference"]["n"] == 4
    assert set(results["controls"]) == {"uniform_bank", "target_only"}


#: Tables 1 and 3: unconditional and SP, by column.
TABLES = {
    "paper/table3_maml": [(54.12, 58.46), (67.58, 74.51), (51.28, 60.89), (69.80, 78.42)],
    "paper/table3_leo": [(60.37, 61.46), (75.36, 76.54), (65.11, 66.07), (79.70, 80.68)],
    "paper/table3_ls": [(60.19, 62.04), (76.76, 78.22), (64.32, 66.42), (81.43, 82.62)],
}


def printed(recipe, name: str) -> list[float]:
    """The means of a figure that the entries which match have."""
    figures = [getattr(entry, name) for entry in matching(recipe)]
    return [figure[0] for figure in figures if figure is not None]


@pytest.mark.parametrize("name", TABLES)
def test_every_column_shows_the_paper_s_figures_for_it_alone(name):
    for (variant, shots), (before, after) in zip(COLUMNS, TABLES[name], strict=True):
        recipe = load(name, [f"data.variant={variant}", f"data.shots={shots}"]).recipe
        assert printed(recipe, "unconditional")[0] == before
        assert printed(recipe, "conditional") == [after]
        for entry in matching(recipe):
            assert entry.source.startswith(("Wang et al. 2020, Table", "Rusu et al. 2019"))


ABLATIONS = {
    "condition.top_m=100": (77.60, 81.95),
    "condition.top_m=1000": (78.43, 82.95),
    "condition.top_m=10000": (78.47, 83.01),
    "condition.top_m=30000": (78.51, 83.03),
    "condition.beta1=0": (73.59, 79.74),
    "condition.beta2=0 evaluate.controls=[uniform_bank]": (77.32, 81.63),
    "condition.beta2=2": (78.51, 83.01),
}


@pytest.mark.parametrize(("texts", "figures"), ABLATIONS.items(), ids=ABLATIONS)
def test_ablations_show_their_own_figures_and_not_the_table_s(texts, figures):
    for variant, figure in zip(("mini", "tiered"), figures, strict=True):
        overrides = [*texts.split(), "data.shots=5", f"data.variant={variant}"]
        assert printed(load("paper/table3_ls", overrides).recipe, "conditional") == [figure]


NOT_PRINTED = [
    "condition.top_m=200",
    "condition.beta2=3",
    "weighting.use=uniform",
    "kernel.use=linear",
    "meta_train.steps=0",
    "inner.use=r2d2",
]


@pytest.mark.parametrize("text", NOT_PRINTED)
def test_settings_that_the_paper_has_no_figure_for_show_none(text):
    assert printed(load("paper/table3_ls", [text]).recipe, "conditional") == []


@pytest.mark.parametrize("name", EVERY)
def test_every_entry_is_shown_somewhere(name):
    """Each one's own conditions, set as overrides, make a valid recipe that shows it."""
    recipe = load(name).recipe
    assert recipe.published
    for entry in recipe.published:
        values = {at[-1]: value for at, value in entry.conditions()}
        texts = [f"{key}={'null' if value is None else value}" for key, value in values.items()]
        if values.get("condition.beta2") == 0:
            texts.append("evaluate.controls=[]")
        assert entry in matching(load(name, texts).recipe)


def compare_commands() -> list[list[str]]:
    """Every ``metaforge compare`` of the recipes' headers, as words."""
    found = []
    for name in EVERY:
        text = (shipped_dir() / f"{name}.yaml").read_text(encoding="utf-8")
        joined = re.sub(r"\n#     +", " ", text)
        found += [shlex.split(line) for line in re.findall(r"#   metaforge compare (.*)", joined)]
    return found


def test_there_are_commands_in_the_headers():
    assert {words[0] for words in compare_commands()} == {
        *("paper/table3_ls", "paper/cifar_fs", "paper/bank_size")
    }


@pytest.mark.parametrize("words", compare_commands(), ids=" ".join)
def test_every_cell_of_the_compare_commands_is_valid(words):
    name, option, varied, *overrides = words
    assert option == "--over"
    key, values = parse_over(varied)
    assert len(expand(name, overrides, {key: values}, []).cells) == len(values)


@pytest.mark.parametrize("name", ["paper/cifar_fs", "paper/steps", "paper/bank_size"])
def test_the_recipes_of_figures_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    more = ["condition.steps=3", "condition.record_at=[1, 2]", f"output={tmp_path}/runs"]
    if name == "paper/steps":  # its own data take a minute to draw
        more += ["data.use=sinusoids", "inner.use=maml"]
    results = metaforge.run(name, *QUICK, *more)
    assert results["difference"]["n"] == 4
    assert results["curve"]["steps"] == [0, 1, 2, 3]
