"""What a grid's recipes are, before any is run."""

from __future__ import annotations

import pytest

from metaforge import comparison
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
    assert set(ls.inner.options) == {"hidden", "normalize", "ridge"}
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


def test_an_output_folder_that_cannot_be_made_is_found_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge.pipeline.run", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make this folder"):
        comparison.compare_grid(RECIPE, seeds=[0, 1], out=tmp_path / "file")
