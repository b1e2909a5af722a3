"""Published figures in a recipe: which entries match, and what is wrong with an entry."""

from __future__ import annotations

import re

import pytest

from metaforge.cli import main
from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.published import matching

from .conftest import RECIPE

ENTRY = "  - {{source: A table, spread: sd of runs, conditional: [62.0, 0.5], when: {when}}}\n"


def with_entries(*when: str) -> str:
    return RECIPE + "published:\n" + "".join(ENTRY.format(when=one) for one in when)


def sources(recipe) -> list[str]:
    return [entry.source for entry in matching(recipe)]


MATCHES = {
    "{}": True,
    "{condition.steps: 20}": True,
    "{condition.steps: 20.0}": True,
    "{condition.steps: 21}": False,
    "{inner.model.use: linear, kernel.gamma: 2}": True,
    "{inner.model.use: linear, kernel.gamma: 3}": False,
    "{condition.record_at: null}": True,
    "{condition.record_at: [0, 20]}": False,
    "{weighting.lambda: 1e-4}": True,
    "[{condition.steps: 20}, {data.ways: 3}]": True,
    "[{condition.steps: 20}, {data.ways: 5}]": False,
    "{inner.use: ls, inner.lambda: 0.1}": False,
    "{select.targets: 30}": False,
}


@pytest.mark.parametrize(("when", "matches"), MATCHES.items(), ids=MATCHES)
def test_an_entry_matches_where_all_of_its_conditions_hold(fakes, write_recipe, when, matches):
    recipe = load(write_recipe(with_entries(when))).recipe
    assert sources(recipe) == ["A table"] * matches


def test_overrides_decide_which_entries_match(fakes, write_recipe):
    path = write_recipe(with_entries("{condition.top_m: 50}", "{condition.top_m: 100}"))
    for top_m, index in ((50, 0), (100, 1)):
        recipe = load(path, [f"condition.top_m={top_m}"]).recipe
        assert matching(recipe) == [recipe.published[index]]
    assert matching(load(path, ["condition.top_m=70"]).recipe) == []


def test_an_option_of_a_component_that_is_not_in_use_is_no_mistake(fakes, write_recipe):
    path = write_recipe(with_entries("{kernel.sigma: 3}", "{inner.model.hidden: [64]}"))
    assert matching(load(path).recipe) == []
    assert len(matching(load(path, ["inner.model.use=mlp"]).recipe)) == 1


UNKNOWN = {
    "{condition.topm: 50}": "condition.topm: unknown key; did you mean 'condition.top_m'?",
    "[{}, {kernel.gama: 2}]": "kernel.gama: unknown key; did you mean 'kernel.gamma'?",
    "{kernel: gaussian}": "kernel: unknown key; did you mean 'kernel.use'?",
    "{inner.model.hiden: [64]}": "unknown key; did you mean 'inner.model.hidden'?",
    "{zzz: 1}": "zzz: unknown key (expected a dotted key, such as condition.top_m)",
    "{trackers: []}": "trackers: unknown key",
}


@pytest.mark.parametrize(("when", "message"), UNKNOWN.items(), ids=UNKNOWN)
def test_unknown_keys_are_problems_with_their_line(fakes, write_recipe, when, message, capsys):
    path = write_recipe(with_entries("{}", when))
    assert main(["validate", str(path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.partition(f"{path}:19: published[1].when")[2]
    assert message in line


BAD = {
    "{source: A, when: {}}": "give unconditional, conditional, or a finding in words",
    "{source: A, when: {}, conditional: [1, 2]}": "spread: say what the +- of the figures is",
    "{source: A, when: {}, spread: sd, conditional: [1, -2]}": "greater than or equal to 0",
    "{source: A, when: {}, spread: sd, conditional: [1]}": "conditional",
    "{source: A, when: 3, finding: none}": "when: should be keys and values, or a list; found 3",
    "{source: '', when: {}, finding: none}": "source: should have at least 1 character",
    "{source: A, finding: none}": "when: required, and not given",
    "{source: A, when: {}, findings: none}": "unknown key; did you mean 'finding'?",
}


@pytest.mark.parametrize(("entry", "message"), BAD.items(), ids=BAD)
def test_bad_entries_say_what_is_wrong(fakes, write_recipe, entry, message):
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(RECIPE + f"published:\n  - {entry}\n"))
    for problem in caught.value.problems:
        # A key that is there has its own line, what is missing that of the section.
        assert re.search(r"fake\.yaml:1[78]: published\[0\]", str(problem))
    assert message in str(caught.value)


def test_the_resolved_recipe_has_them_and_they_are_no_change(fakes, write_recipe):
    shared = "  - {source: &a One, when: [&b {condition.steps: 20}, {seed: 0}], finding: none}\n"
    text = RECIPE + f"published:\n{shared}  - {{source: *a, when: [*b], finding: none}}\n"
    resolved = load(write_recipe(text))
    assert sources(resolved.recipe) == ["One", "One"]
    again = load(write_recipe(resolved.to_yaml(), "again.yaml"))
    assert again.recipe == resolved.recipe
    assert again.changes == load(write_recipe(RECIPE, "plain.yaml")).changes


def test_validate_says_what_is_published_for_these_settings(fakes, write_recipe, capsys):
    path = str(write_recipe(with_entries("{seed: 0}")))
    assert main(["validate", path]) == 0
    assert "published   A table" in capsys.readouterr().out
    assert main(["validate", path, "seed=1"]) == 0
    assert "published   nothing for these settings" in capsys.readouterr().out
