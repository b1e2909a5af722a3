"""Presets: every option of the paper's and the released program's settings, each changeable."""

from __future__ import annotations

import pytest

from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.presets import PRESETS

SHORT = {"data": {"use": "glyphs"}, "inner": {"use": "ls"}}


def held(recipe, key: str):
    """The value of a dotted key in a resolved recipe."""
    found = recipe.model_dump(by_alias=True)
    for part in key.split("."):
        found = found[part]
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_every_option_is_in_the_resolved_recipe(name):
    recipe = load(SHORT, [f"preset={name}"]).recipe
    for key, value in PRESETS[name].items():
        assert held(recipe, key) == value, key


def test_the_two_say_something_about_the_same_options():
    widths = {"kernel.sigma", "kernel.gamma"}
    assert set(PRESETS["paper"]) - widths == set(PRESETS["released"]) - widths


@pytest.mark.parametrize("name", PRESETS)
def test_the_resolved_recipe_gives_itself(name, tmp_path):
    resolved = load(SHORT, [f"preset={name}", "condition.optimizer.clip_norm=null"])
    path = tmp_path / "resolved.yaml"
    path.write_text(resolved.to_yaml())
    assert load(path).recipe == resolved.recipe


OTHERS = {
    "kernel.signature": "support",
    "condition.weights_in_loss": "alpha",
    "condition.optimizer.clip_value": None,
    "condition.optimizer.clip_norm": None,
    "condition.optimizer.eps_convention": "torch",
    "condition.optimizer_state": "meta-train",
    "condition.negative": "keep",
    "weighting.lambda": "n^-1/2",
    "kernel.gamma": 3.0,
}


@pytest.mark.parametrize(("key", "value"), OTHERS.items(), ids=OTHERS)
def test_each_difference_can_be_chosen_alone(key, value):
    preset = load(SHORT, ["preset=released"]).recipe
    text = "null" if value is None else value
    mine = load(SHORT, ["preset=released", f"{key}={text}"]).recipe
    assert held(mine, key) == value
    assert held(preset, key) != value
    for other in set(PRESETS["released"]) - {key}:
        assert held(mine, other) == held(preset, other), other


@pytest.mark.parametrize("width", ["sigma=2.0", "bandwidth=median", "gamma=1.0"])
@pytest.mark.parametrize("name", PRESETS)
def test_another_way_to_give_the_width_wins(name, width):
    kernel = load(SHORT, [f"preset={name}", f"kernel.{width}"]).recipe.kernel.options
    given = [key for key in ("gamma", "sigma", "bandwidth") if kernel[key] is not None]
    assert given == [width.partition("=")[0]]


def test_other_components_get_what_means_the_same_in_them():
    recipe = load(SHORT, ["preset=released", "kernel=laplace", "weighting.use=uniform"]).recipe
    assert recipe.kernel.options["signature"] == "all"
    assert recipe.kernel.options["sigma"] is None, "the gaussian's width is no laplace's"
    assert recipe.weighting.options == {}


def test_another_optimiser_has_no_eps_convention():
    recipe = load(SHORT, ["preset=released", "condition.optimizer.use=sgd"]).recipe
    assert recipe.condition.optimizer.use == "sgd"
    assert recipe.condition.optimizer.eps_convention == "torch"
    assert recipe.condition.optimizer.clip_value == 0.1


def test_an_unknown_preset_and_a_clash_are_problems_that_say_where():
    with pytest.raises(RecipeError, match=r"preset: .*'paper' or 'released'"):
        load(SHORT, ["preset=papper"])
    with pytest.raises(RecipeError, match="kernel: embedding: joint needs labels"):
        load({**SHORT, "kernel": {"embedding": "joint"}}, ["preset=released"])
    with pytest.raises(RecipeError, match="kernel"):
        load({**SHORT, "kernel": 3}, ["preset=paper"])


def test_without_a_preset_nothing_is_written():
    assert held(load(SHORT).recipe, "bank.size") == 5000
