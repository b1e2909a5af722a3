"""What a grid's recipes are, before any is run."""

from __future__ import annotations

import numpy as np
import pytest

import metaforge
from metaforge import comparison
from metaforge.comparison import given, making
from metaforge.comparison.grid import _assignment, expand, parse_over
from metaforge.errors import DataError, RecipeError
from metaforge.recipe.overrides import parse

from .folders import RECIPE


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def grid(*overrides, seeds=(), **over):
    return expand(RECIPE, overrides, {key.replace("__", "."): v for key, v in over.items()}, seeds)


def recipes(found):
    return [resolved.recipe for resolved in found.cells.values()]


def test_every_combination_under_every_seed_the_first_key_slowest():
    found = grid(
        weighting__use=["tasml", "uniform"], kernel__use=["gaussian", "laplace"], seeds=[4]
    )
    assert list(found.cells) == [
        "weighting.use=tasml kernel.use=gaussian seed=4",
        "weighting.use=tasml kernel.use=laplace seed=4",
        "weighting.use=uniform kernel.use=gaussian seed=4",
        "weighting.use=uniform kernel.use=laplace seed=4",
    ]
    assert [(r.weighting.use, r.kernel.use, r.seed) for r in recipes(found)] == [
        ("tasml", "gaussian", 4),
        ("tasml", "laplace", 4),
        ("uniform", "gaussian", 4),
        ("uniform", "laplace", 4),
    ]


def test_seeds_alone_vary_nothing_else():
    found = recipes(grid(seeds=[0, 2]))
    assert [r.seed for r in found] == [0, 2]
    assert found[0].model_copy(update={"seed": 2}) == found[1]


def test_a_component_drops_the_options_beside_it_that_it_has_not():
    maml, ls, leo = recipes(grid("data=glyphs", inner__use=["maml", "ls", "leo"]))
    assert maml.inner.options["model"]["hidden"] == [16]
    assert set(ls.inner.options) == {"hidden", "normalize", "ridge", "network"}
    assert "model" not in leo.inner.options


@pytest.mark.parametrize("key", ["inner.use", "inner"])
def test_an_override_goes_to_the_methods_that_have_its_option(key):
    found = expand(RECIPE, ["inner.ridge=0.5", "inner.model.hidden=[8]"], {key: ["maml", "ls"]}, [])
    maml, ls = recipes(found)
    assert maml.inner.options["model"]["hidden"] == [8]
    assert "ridge" not in maml.inner.options
    assert ls.inner.options["ridge"] == 0.5
    assert found.notes == [
        "inner.ridge=0.5 is left out for maml, which has no such option",
        "inner.model.hidden=[8] is left out for ls, which has no such option",
    ]


def test_nested_components_vary_where_there_are_any():
    found = grid(inner__use=["maml", "ls"], inner__model__use=["mlp", "linear"])
    assert list(found.cells) == [
        "inner.use=maml inner.model.use=mlp",
        "inner.use=maml inner.model.use=linear",
        "inner.use=ls",
    ]


def test_combinations_that_come_to_the_same_are_one():
    found = grid(inner__use=["maml", "ls"], inner__steps=[1, 2])
    assert list(found.cells) == [
        "inner.use=maml inner.steps=1",
        "inner.use=maml inner.steps=2",
        "inner.use=ls",
    ]


@pytest.mark.parametrize("value", ["tasml", "1e-3", "a b", "true", "", "null", "[1]", 3, None, [1]])
def test_values_given_from_python_are_read_back_as_they_are(value):
    assert parse(_assignment("some.key", value)).value == value


OVER = {
    "weighting.use=tasml,uniform": ("weighting.use", ["tasml", "uniform"]),
    "condition.top_m=10,50": ("condition.top_m", [10, 50]),
    "weighting.lambda=1e-4, n^-1/2": ("weighting.lambda", [1e-4, "n^-1/2"]),
    "inner.model.hidden=[8],[16,16]": ("inner.model.hidden", [[8], [16, 16]]),
    "meta_train.optimizer.clip_norm=null,0.1": ("meta_train.optimizer.clip_norm", [None, 0.1]),
}


@pytest.mark.parametrize(("text", "expected"), OVER.items())
def test_over_reads_values_as_a_recipe_does(text, expected):
    assert parse_over(text) == expected


@pytest.mark.parametrize("text", ["weighting.use", "=a,b", "weighting.use=", "a=[b", "a=b]"])
def test_over_without_key_or_values_is_an_error(text):
    with pytest.raises(RecipeError, match="--over"):
        parse_over(text)


def test_all_problems_of_all_recipes_come_at_once_and_once():
    with pytest.raises(RecipeError) as caught:
        grid("inner.rigde=1", "bank.size=x", seeds=[0, 1], inner__use=["ls", "mmal"])
    told = [str(problem) for problem in caught.value.problems]
    assert len(set(told)) == len(told)
    assert any("unknown key; did you mean 'ridge'?" in line for line in told)
    assert any("unknown inner_algorithm 'mmal'; did you mean 'maml'?" in line for line in told)
    assert sum("bank.size" in line for line in told) == 1


def test_an_option_that_no_method_has_is_an_error_whatever_its_values():
    with pytest.raises(RecipeError, match="rigde: unknown key"):
        grid(inner__use=["maml", "ls"], inner__rigde=[0.1, 0.2])


TWICE = {
    "the same key": (["condition.steps=3"], {"condition.steps": [1, 2]}, (), "condition.steps"),
    "a component by its name": (["weighting=tasml"], {"weighting.use": ["tasml"]}, (), "weighting"),
    "its section": (["condition={steps: 3}"], {"condition.steps": [1]}, (), "condition.steps"),
    "a seed": (["seed=3"], {}, [0, 1], "seed"),
    "seeds varied twice": ([], {"seed": [0, 1]}, [0, 1], "seed"),
    "over twice": ([], {"kernel": ["gaussian"], "kernel.use": ["laplace"]}, (), "kernel.use"),
}


@pytest.mark.parametrize(("overrides", "over", "seeds", "key"), TWICE.values(), ids=TWICE)
def test_a_key_set_twice_is_an_error_that_names_it(overrides, over, seeds, key):
    with pytest.raises(RecipeError, match=rf"^{key}: given twice") as caught:
        expand(RECIPE, overrides, over, seeds)
    assert caught.value.exit_code == 2


def test_an_option_of_a_varied_component_is_not_set_twice():
    overrides = ["inner.steps=3", "condition.batch=5"]
    assert len(expand(RECIPE, overrides, {"inner.use": ["maml", "ls"]}, []).cells) == 2


@pytest.mark.parametrize("key", ["evaluate.workers", "name", "output", "trackers", "published"])
def test_a_key_that_changes_no_result_is_no_method(key):
    with pytest.raises(RecipeError, match=f"{key}: this key does not change results"):
        expand(RECIPE, [], {key: [1, 2]}, [])


def test_recipes_that_give_the_same_results_are_one_run():
    found = expand(
        RECIPE, ["threads=1"], {"evaluate": [{"targets": 5, "workers": n} for n in (1, 2)]}, []
    )
    assert len(found.cells) == 1


UNLIKE = {
    "data.shots": [1, 5],
    "evaluate.targets": [5, 6],
    "evaluate.split": ["test", "val"],
}


@pytest.mark.parametrize(("key", "values"), UNLIKE.items())
def test_what_will_be_unlike_is_refused_before_anything_runs(key, values, tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge.pipeline.run", None)
    with pytest.raises(DataError, match=rf"{key}: {values[0]} in .*; {values[1]} in "):
        comparison.compare_grid(RECIPE, over={key: values}, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


FOURIER = {**RECIPE, "kernel": {"use": "gaussian", "embedding": "fourier"}}


@pytest.mark.parametrize("overrides", [(), ("seed=3", "condition.steps=2")])
def test_transductive_beside_inductive_is_refused_before_anything_runs(
    overrides, tmp_path, monkeypatch
):
    monkeypatch.setattr("metaforge.pipeline.run", None)
    with pytest.raises(DataError, match=r"transductive: yes in .*=all; no in .*=support"):
        comparison.compare_grid(FOURIER, overrides, over={"kernel.signature": ["all", "support"]})
    assert list(tmp_path.iterdir()) == []


def test_a_precision_that_makes_other_data_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge.pipeline.run", None)
    rng = np.random.default_rng(0)
    np.savez("some.npz", X=rng.normal(size=(600, 4)), y=np.repeat(np.arange(30), 20))
    arrays = {"use": "arrays", "path": "some.npz", "ways": 2, "shots": 1, "queries": 3}
    with pytest.raises(DataError, match=r"data fingerprint at seed 0: \w+ in precision=float32"):
        comparison.compare_grid(
            {**RECIPE, "data": arrays}, over={"precision": ["float32", "float64"]}, seeds=[0, 1]
        )


def test_signatures_of_no_use_make_nobody_transductive():
    cells = expand(FOURIER, ["condition.steps=0"], {"kernel.signature": ["all", "support"]}, [])
    assert {told["transductive"] for told in making.facts(cells, quiet=True).values()} == {"no"}


GIVEN = {
    "over: a word": {"over": "weighting.use=tasml"},
    "over: a list": {"over": ["weighting.use"]},
    "over: a number": {"over": 3},
    "over: a key that is a number": {"over": {3: [1]}},
    "over: values that are a word": {"over": {"weighting.use": "tasml"}},
    "over: values that are a number": {"over": {"condition.steps": 3}},
    "over: values that are none": {"over": {"condition.steps": None}},
    "over: no value": {"over": {"condition.steps": []}},
    "over: a set": {"over": {"condition.steps": {3, 4}}},
    "seeds: a number": {"seeds": 3},
    "seeds: a truth": {"seeds": True},
    "seeds: a word": {"seeds": "0,1"},
    "seeds: none in a list": {"seeds": [None]},
    "seeds: halves": {"seeds": [0.5]},
    "seeds: below 0": {"seeds": [-1]},
    "seeds: a mapping": {"seeds": {0: 1}},
    "out: a number": {"seeds": [0], "out": 3},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_arguments_of_another_kind_are_told(given):
    with pytest.raises(RecipeError, match=r"^compare: .* found |^compare: .*no value is given"):
        metaforge.compare(RECIPE, **given)


@pytest.mark.parametrize("change", [None, 3, {"condition.steps=3"}, ["condition.steps=3"]])
def test_changes_of_another_kind_are_told(change):
    with pytest.raises(RecipeError, match="changes to a recipe are texts"):
        metaforge.compare(RECIPE, change, seeds=[0])


@pytest.mark.parametrize("run", [None, 3, ["runs/a"], {"a": 1}, b"runs", "runs\0a"])
def test_runs_of_another_kind_are_told(run):
    with pytest.raises(RecipeError, match="expected the folder of a finished run, found"):
        metaforge.compare(run, over={}, seeds=[])


def test_numbers_of_numpy_are_seeds_and_values():
    over = {"condition.steps": np.array([2, 4])}
    assert given.over_values(over)["condition.steps"] == [2, 4]
    assert given.seed_list(np.array([1, 0, 1])) == (1, 0)
    assert given.is_grid(None, np.array([0, 1]))


def test_an_output_folder_that_cannot_be_made_is_found_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge.pipeline.run", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make this folder"):
        comparison.compare_grid(RECIPE, seeds=[0, 1], out=tmp_path / "file")
