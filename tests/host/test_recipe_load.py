"""Overrides, completion, paths and the round trip of recipes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import metaforge
from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.find import shipped_dir
from metaforge.recipe.overrides import as_texts, parse

from .conftest import RECIPE


def options(choice):
    return {"use": choice.use, **choice.options}


def test_resolved_recipe_is_complete(fakes, write_recipe):
    recipe = load(write_recipe()).recipe
    assert options(recipe.inner) == {
        "use": "maml",
        "model": {"use": "linear", "bias": True},
        "backbone": None,
        "steps": 2,
        "lr": 0.1,
    }
    assert options(recipe.weighting) == {"use": "tasml", "lambda": 1e-4, "jitter": 1e-10}
    assert recipe.condition.steps == 20
    assert recipe.condition.batch == 8


def test_frozen(fakes, write_recipe):
    with pytest.raises(AttributeError):
        load(write_recipe()).recipe = None
    with pytest.raises(ValueError, match="frozen"):
        load(write_recipe()).recipe.seed = 3


READ = {
    "condition.optimizer.lr=1e-4": ("condition.optimizer.lr", 1e-4),
    "condition.record_at=[0, 5, 20]": ("condition.record_at", [0, 5, 20]),
    "condition.record_at=null": ("condition.record_at", None),
    "condition.record_at=": ("condition.record_at", None),
    "weighting.lambda=n^-1/2": ("weighting.lambda", "n^-1/2"),
    "inner.model={use: mlp, hidden: [8]}": ("inner.model", {"use": "mlp", "hidden": [8]}),
    "inner.model.use=mlp": ("inner.model", {"use": "mlp", "hidden": [64]}),
    "data.root=/a=b": ("data.root", "/a=b"),
    " seed =7": ("seed", 7),
    "output=~/runs": ("output", os.path.expanduser("~/runs")),
    "trackers=[csv, {use: csv, bias: false}]": (
        "trackers",
        [{"use": "csv", "bias": True}, {"use": "csv", "bias": False}],
    ),
}


@pytest.mark.parametrize(("override", "expected"), READ.items(), ids=READ)
def test_overrides_read_as_written(fakes, write_recipe, override, expected):
    key, value = expected
    found = load(write_recipe(), [override]).recipe.model_dump(mode="json", by_alias=True)
    for part in key.split("."):
        found = found[part]
    assert found == value


CHANGES = {
    "texts": ["condition.steps=7", "kernel.use=laplace"],
    "a mapping": {"condition.steps": 7, "kernel.use": "laplace"},
    "mappings": [{"condition.steps": 7}, {"kernel.use": "laplace"}],
    "mixed": ({"condition.steps": np.int64(7)}, "kernel=laplace"),
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_changes_are_texts_or_mappings(fakes, write_recipe, changes):
    resolved = load(write_recipe(), changes)
    assert resolved.recipe == load(write_recipe(), CHANGES["texts"]).recipe
    assert resolved.recipe.condition.steps == 7


def test_one_text_is_one_change(fakes, write_recipe):
    assert load(write_recipe(), "seed=3").recipe.seed == 3


VALUES = [1e-5, 1e16, 3, True, None, "no", "1", 'a "b" = c', "\U0001f600é", [1, 2.5], {"a": [None]}]


@pytest.mark.parametrize("value", VALUES, ids=map(repr, VALUES))
def test_values_of_a_mapping_are_read_as_they_are(value):
    (text,) = as_texts({"a.b": value})
    found = parse(text)
    assert (found.path, found.value, type(found.value)) == (("a", "b"), value, type(value))


def test_a_problem_of_a_mapped_value_names_it(fakes, write_recipe):
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), {"condition.stpes": 7})
    assert str(caught.value) == (
        "override 'condition.stpes=7': condition.stpes: unknown key; did you mean 'steps'?"
    )


@pytest.mark.parametrize("changes", [None, 3, [None], [["seed=1"]], [{"a": object()}]])
def test_what_is_no_change_is_refused(fakes, write_recipe, changes):
    with pytest.raises(RecipeError, match=r"found (NoneType|int|list|object)$"):
        load(write_recipe(), changes)


def test_an_array_in_a_recipe_is_told_to_be_saved(fakes, write_recipe):
    with pytest.raises(
        RecipeError, match=r"data\.x: .*found ndarray: save arrays with numpy\.save"
    ):
        load(write_recipe(), {"data.x": np.zeros((2, 2))})


@pytest.mark.parametrize("source", [None, 3, ["sp_maml"], b"sp_maml"], ids=repr)
def test_what_is_no_recipe_is_refused(fakes, source):
    with pytest.raises(RecipeError, match=r"a recipe is a path, .*; found (NoneType|int|list|byt)"):
        metaforge.run(source)


def test_the_last_override_wins(fakes, write_recipe):
    assert load(write_recipe(), ["seed=1", "seed=2"]).recipe.seed == 2


def test_changing_a_component_drops_what_it_does_not_have(fakes, write_recipe):
    resolved = load(write_recipe(), ["weighting.use=uniform", "kernel.use=laplace"])
    assert options(resolved.recipe.weighting) == {"use": "uniform"}
    assert options(resolved.recipe.kernel)["sigma"] == "median"
    assert resolved.notes == (
        "override 'weighting.use=uniform' drops weighting.lambda: "
        "task_weighting 'uniform' has no such option",
        "override 'kernel.use=laplace' drops kernel.gamma: "
        "task_kernel 'laplace' has no such option",
    )


def test_changing_a_component_keeps_what_it_has(fakes, write_recipe):
    text = RECIPE.replace("gamma: 2.0", "gamma: 2.0, normalize: false")
    resolved = load(write_recipe(text), ["kernel.use=laplace"])
    assert options(resolved.recipe.kernel)["normalize"] is False
    assert len(resolved.notes) == 1


def test_an_alias_counts_as_the_option(fakes, write_recipe):
    text = RECIPE.replace("use: maml\n  steps: 2", "use: maml\n  lr: 0.5\n  steps: 2")
    resolved = load(write_recipe(text), ["inner.use=ls", "inner.lambda=2"])
    assert options(resolved.recipe.inner) == {"use": "ls", "lambda": 2.0, "lr": 0.5}
    assert [note.split(": ")[0] for note in resolved.notes] == [
        "override 'inner.use=ls' drops inner.steps"
    ]


def test_nested_component_changed(fakes, write_recipe):
    text = RECIPE.replace("steps: 2\n", "steps: 2\n  model: {use: mlp, hidden: [8]}\n")
    resolved = load(write_recipe(text), ["inner.model.use=linear"])
    assert resolved.recipe.inner.options["model"] == {"use": "linear", "bias": True}
    assert resolved.notes == (
        "override 'inner.model.use=linear' drops inner.model.hidden: "
        "model 'linear' has no such option",
    )


def test_same_component_drops_nothing(fakes, write_recipe):
    resolved = load(write_recipe(), ["kernel.use=gaussian"])
    assert resolved.recipe.kernel.options["gamma"] == 2.0
    assert resolved.notes == ()


@pytest.mark.parametrize("order", [1, -1])
def test_an_option_given_by_override_is_never_dropped(fakes, write_recipe, order):
    overrides = ["kernel.gamma=3", "kernel.use=laplace"][::order]
    with pytest.raises(
        RecipeError, match=r"override 'kernel\.gamma=3': kernel\.gamma: unknown key"
    ):
        load(write_recipe(), overrides)


def test_a_component_may_be_given_by_name_alone(fakes, write_recipe):
    text = RECIPE.replace("{use: gaussian, gamma: 2.0}", "laplace")
    assert load(write_recipe(text)).recipe.kernel.use == "laplace"
    short = load(write_recipe(), ["kernel=laplace"])
    assert short.recipe.kernel.use == "laplace"
    assert len(short.notes) == 1
    assert load(write_recipe(text), ["kernel.sigma=2"]).recipe.kernel.options["sigma"] == 2.0


def test_options_without_use_are_those_of_the_default(fakes, write_recipe):
    text = RECIPE.replace("use: gaussian, ", "")
    assert load(write_recipe(text)).recipe.kernel.use == "gaussian"
    resolved = load(write_recipe(), ["inner.model.bias=false"])
    assert resolved.recipe.inner.options["model"] == {"use": "linear", "bias": False}


def test_null_section_is_made_by_an_override(fakes, write_recipe):
    resolved = load(
        write_recipe(RECIPE + "select: null\n"), ["select.grid.condition.top_m=[5, 10]"]
    )
    assert resolved.recipe.select.grid == {"condition.top_m": (5, 10)}


COMPLETE = [
    [],
    ["inner.model.use=mlp", "kernel.use=laplace", "weighting.use=uniform"],
    ["select.grid.kernel.gamma=[1.0, 1e-4]", "select.grid.condition.steps=[5, 10]"],
    ["trackers=[csv]", "data.root=some/folder", "output='1e-4'", "name='010'"],
    ["kernel={use: laplace, sigma: 3}"],
]


@pytest.mark.parametrize("overrides", COMPLETE, ids=map(" ".join, COMPLETE))
def test_complete_recipe_reloads_to_the_same(fakes, write_recipe, overrides):
    first = load(write_recipe(), overrides)
    again = load(write_recipe(first.to_yaml(), "resolved.yaml"))
    assert again.recipe == first.recipe
    assert again.to_yaml() == first.to_yaml()
    assert again.changes == first.changes
    from_mapping = load(first.recipe.model_dump(mode="json", by_alias=True))
    assert from_mapping.recipe == first.recipe


def test_relative_paths_start_from_the_recipe(fakes, write_recipe, monkeypatch):
    monkeypatch.setenv("METAFORGE_DATA", "/data")
    path = write_recipe(RECIPE.replace("ways: 3", "root: ../glyphs\n  files: [$METAFORGE_DATA/a]"))
    before = Path.cwd()
    resolved = load(os.path.relpath(path))
    assert Path.cwd() == before
    assert resolved.base_dir == path.parent
    assert resolved.recipe.data.options["root"] == str(path.parent.parent / "glyphs")
    assert resolved.recipe.data.options["files"] == ["/data/a"]


@pytest.mark.parametrize(
    "change",
    ["data.root=glyphs", {"data.root": Path("glyphs")}, "data={use: glyphs, root: glyphs}"],
    ids=["text", "mapping", "section"],
)
def test_relative_paths_of_overrides_start_from_the_working_folder(
    fakes, write_recipe, tmp_path, monkeypatch, change
):
    path = write_recipe(RECIPE.replace("ways: 3", "root: ../elsewhere\n  files: [a]"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    resolved = load(path, [change])
    assert resolved.recipe.data.options["root"] == str(tmp_path / "here" / "glyphs")
    monkeypatch.chdir(tmp_path)
    assert resolved.with_values({"condition.steps": 3}).recipe.data == resolved.recipe.data


def test_an_override_beside_a_path_leaves_it_to_the_recipe(
    fakes, write_recipe, tmp_path, monkeypatch
):
    path = write_recipe(RECIPE.replace("ways: 3", "root: glyphs\n  files: [a]"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    resolved = load(path, ["data.root=mine", "data.files=[b]"])
    assert resolved.recipe.data.options["files"] == [str(tmp_path / "here" / "b")]
    resolved = load(path, ["data.root=mine"])
    assert resolved.recipe.data.options["files"] == [str(path.parent / "a")]
    assert resolved.with_values({"data.root": "b"}).recipe.data.options["root"] == str(
        path.parent / "b"
    )


def test_unset_variable_is_a_problem_of_data(fakes, write_recipe, monkeypatch):
    monkeypatch.delenv("METAFORGE_NOWHERE", raising=False)
    with pytest.raises(RecipeError, match=r"data\.root: \$METAFORGE_NOWHERE is not set") as caught:
        load(write_recipe(), ["data.root=${METAFORGE_NOWHERE}/x"])
    assert caught.value.exit_code == 3


def test_changes_are_what_differs_from_the_defaults(fakes, write_recipe):
    resolved = load(write_recipe(), ["condition.batch=8", "inner.model.use=mlp", "bank.size=7"])
    assert dict(resolved.changes) == {
        "name": "fake",
        "data.use": "glyphs",
        "data.ways": 3,
        "inner.use": "maml",
        "inner.model.use": "mlp",
        "inner.steps": 2,
        "bank.size": 7,
        "kernel.gamma": 2.0,
        "weighting.lambda": 1e-4,
        "condition.steps": 20,
    }


def test_given_text_and_source_are_kept(fakes, write_recipe):
    path = write_recipe()
    resolved = load(path, ["seed=1"])
    assert resolved.text == RECIPE
    assert resolved.source == str(path)
    assert resolved.overrides == ("seed=1",)
    mapping = load({"data": {"use": "glyphs"}, "inner": {"use": "maml"}})
    assert mapping.source == "<mapping>"
    assert mapping.base_dir == Path.cwd()
    assert "use: glyphs" in mapping.text


def test_byte_order_mark_is_no_part_of_a_recipe(fakes, write_recipe):
    assert load(write_recipe("\ufeff" + RECIPE)).recipe.name == "fake"


@pytest.mark.parametrize("name", ["mine", "mine.yaml", "recipes/mine.yaml", "sub/other"])
def test_shipped_recipes_by_name(fakes, tmp_path, monkeypatch, name):
    shipped = tmp_path / "shipped"
    (shipped / "sub").mkdir(parents=True)
    for file in ("mine", "sub/other"):
        (shipped / f"{file}.yaml").write_text(RECIPE)
    monkeypatch.setattr("metaforge.recipe.find.shipped_dir", lambda: shipped)
    assert load(name).base_dir.is_relative_to(shipped)


def test_a_file_is_taken_before_a_shipped_recipe(fakes, tmp_path, monkeypatch):
    Path("mine.yaml").write_text(RECIPE.replace("name: fake", "name: local"))
    (tmp_path / "mine.yaml").write_text(RECIPE)
    monkeypatch.setattr("metaforge.recipe.find.shipped_dir", lambda: tmp_path)
    assert load("mine.yaml").recipe.name == "local"
    assert load("mine").recipe.name == "fake"


def test_recipes_of_plugins_and_two_of_one_name(fakes, tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge.recipe.find.shipped_dir", lambda: tmp_path / "none")
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "both.yaml").write_text(RECIPE)
        (folder / f"{name}.yaml").write_text(RECIPE)
        fakes.plugin(
            name,
            f"""
            from pathlib import Path
            from metaforge.hookspecs import hookimpl

            @hookimpl
            def metaforge_recipes():
                return [Path({str(folder)!r})]
            """,
        )
    assert load("two").base_dir == tmp_path / "two"
    with pytest.raises(RecipeError, match=r"shipped twice, say which: .*one/both.*two/both"):
        load("both")
    with pytest.raises(RecipeError, match="did you mean 'both'"):
        load("bothh")


def test_the_source_tree_ships_its_recipes():
    assert list(shipped_dir().glob("*.yaml"))


def test_with_values_sets_dotted_keys(fakes, write_recipe):
    resolved = load(write_recipe())
    other = resolved.with_values({"condition.top_m": 7, "kernel.use": "laplace"})
    assert other.recipe.condition.top_m == 7
    assert options(other.recipe.kernel) == {"use": "laplace", "sigma": "median", "normalize": True}
    assert resolved.recipe.condition.top_m == 50
    assert resolved.recipe.kernel.use == "gaussian"
    with pytest.raises(
        RecipeError, match=r"value of condition\.top_m: condition\.top_m: should be"
    ):
        resolved.with_values({"condition.top_m": 0})
