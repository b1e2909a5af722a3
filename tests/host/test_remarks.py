"""What validate remarks, and a run notes, of recipes that are no fault and yet surprise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from metaforge.cli.validate import described
from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.remarks import remarks
from tests.small import SMALL


def notes(*overrides: str, weighting=None) -> list[str]:
    resolved = load(SMALL, overrides)
    found = remarks(resolved, weighting)
    if weighting is None:
        assert all(f"note: {note}" in described(resolved) for note in found)
    return found


def test_an_ordinary_recipe_is_not_remarked_on():
    assert notes("evaluate.controls=[uniform_bank, random_m, topm_equal, target_only]") == []


def test_more_kept_than_there_is():
    (note,) = notes("condition.top_m=201")
    assert note.startswith("condition.top_m: 201 is more than bank.size: 200")
    assert notes("condition.top_m=200") == []
    (note,) = notes("select.grid.condition.top_m=[5, 999]")
    assert note.startswith("condition.top_m: 999")


def test_controls_that_a_weighting_without_ranking_has_not():
    both = "evaluate.controls=[uniform_bank, topm_equal]"
    ignored, left_out, itself = notes("weighting.use=uniform", both)
    assert ignored.startswith("uniform does not rank tasks: top_m is ignored")
    assert left_out.startswith("control topm_equal is left out: uniform does not rank tasks")
    assert itself.startswith("control uniform_bank is SP itself under uniform")
    assert len(notes("weighting.use=uniform")) == 1
    learned = notes("weighting.use=uncertainty", both)
    assert [note.split()[1] for note in learned] == ["does", "topm_equal"], "it is not uniform"


def test_a_created_weighting_says_what_its_plugin_does_not():
    unranked = SimpleNamespace(target_specific=False, learned=False)
    assert len(notes("evaluate.controls=[topm_equal]", weighting=unranked)) == 2
    unknown = SimpleNamespace(target_specific=None, learned=None)
    assert notes("evaluate.controls=[topm_equal, uniform_bank]", weighting=unknown) == []


def test_no_target_term_to_be_without():
    words = ("evaluate.without_target_term=true", "condition.beta2=0")
    (note,) = notes(*words)
    assert note.startswith("evaluate.without_target_term changes nothing")
    assert notes(words[0]) == []


OWN = (
    "; the recipe's own: bank.size 200 (preset: 30000), condition.batch 4 (preset: 12), "
    "condition.top_m 10 (preset: 500), "
)


def test_a_preset_says_what_it_comes_to():
    (note,) = notes("preset=paper")
    assert note.startswith("preset paper: weighting.lambda 1e-08, condition.optimizer.lr 0.0001, ")
    assert OWN in note
    assert note.endswith("condition.steps 6 (preset: 100)")


def test_a_preset_without_effect_says_so():
    given = ("weighting.lambda=1", "condition.optimizer.lr=1e-3", "kernel.bandwidth=median")
    # lr: 1e-3 is the default, and said by the recipe all the same
    (note,) = notes("preset=paper", *given)
    assert note.startswith("preset paper changes nothing here: ")
    assert 'kernel.bandwidth "median" (preset: sigma 50.0)' in note


@pytest.mark.parametrize("name", ["paper", "released"])
def test_a_run_and_its_repetition_are_told_the_same(name, tmp_path):
    words = [f"preset={name}", "data.use=glyphs", "kernel.normalize=false"]
    resolved = load(SMALL, words)
    path = tmp_path / "resolved.yaml"
    path.write_text(resolved.to_yaml())
    assert remarks(load(path)) == remarks(resolved)


@pytest.mark.parametrize("words", [["preset=released"], ["kernel.signature=all"]], ids=str)
def test_queries_without_labels_have_no_joint_signature(words):
    with pytest.raises(RecipeError, match="kernel: signature: all reads the queries") as caught:
        load(SMALL, words)
    assert caught.value.exit_code == 2
    assert load(SMALL, [*words, "kernel.embedding=mean"]).problems() == []
    assert load(SMALL, [*words, "kernel.signature=support"]).problems() == []
    with pytest.raises(RecipeError, match=r"select.grid.kernel.signature: .all.: signature: all"):
        load(SMALL, ["select.grid.kernel.signature=[support, all]"])
