"""Nothing leaks: not from a target's queries, not between targets, not from test to choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metaforge import said, scoring, stages
from metaforge.components import Context
from metaforge.errors import RecipeError
from metaforge.evaluation import Evaluator
from metaforge.metatrain import WarmStart
from metaforge.recipe import load
from metaforge.recipe.schema import Recipe

RECIPE = {
    "data": {"use": "arrays", "ways": 3, "shots": 2, "queries": 4},
    "inner": {"use": "maml", "steps": 2, "lr": 0.5},
    "bank": {"size": 60},
    "condition": {"steps": 5, "batch": 4, "top_m": 8},
    "evaluate": {"targets": 6, "controls": ["random_m", "topm_equal"]},
}


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 8))
    y = np.repeat(np.arange(30), 12)
    np.savez(tmp_path / "d.npz", X=(centres[y] + rng.normal(size=(360, 8))).astype("f4"), y=y)
    return {**RECIPE, "data": {**RECIPE["data"], "path": str(tmp_path / "d.npz")}}


def parts(data: dict, *overrides: str) -> stages.Parts:
    recipe = load(data, overrides).recipe
    return stages.Parts.build(recipe, Context())


def evaluator(built: stages.Parts, targets: range) -> Evaluator:
    start = WarmStart(built.theta)
    facts = built.bank_facts(start)
    return Evaluator(
        built.recipe,
        built.source,
        built.inner,
        start,
        facts,
        built.score("test", targets),
        "test",
    )


class OtherQueries:
    """A source whose target queries are replaced; all else as it was."""

    def __init__(self, source):
        self._source = source

    def __getattr__(self, name):
        return getattr(self._source, name)

    def batch(self, split, ids, view="input"):
        batch = self._source.batch(split, ids, view)
        return replace(batch, query_x=batch.query_x * 100 + 7) if split == "test" else batch


@pytest.mark.parametrize("signature", ["support", "all"])
def test_query_inputs_change_the_weights_only_under_signature_all(data, signature):
    built = parts(data, f"kernel.signature={signature}")
    scorer = scoring.Scorer(built.weighting, built.weighting_state, built.gram, 60)
    before = scorer.score(built.source, "test", range(6), 8)
    after = scorer.score(OtherQueries(built.source), "test", range(6), 8)
    same = np.array_equal(before.ids, after.ids) and np.array_equal(before.weights, after.weights)
    assert same == (signature == "support")
    assert said.is_transductive(built) == (signature == "all")


def test_what_a_kernel_reads_tells_whether_a_run_is_transductive_not_its_options(data):
    """A kernel of another plugin need not call its option ``signature``."""
    built = parts(data)
    assert not said.is_transductive(built)
    built.kernel.reads = "all"
    assert said.is_transductive(built)


def test_targets_do_not_depend_on_their_order_or_company(data):
    together = [e.record for e in evaluator(parts(data), range(6)).run(range(6))]
    alone = next(iter(evaluator(parts(data), range(4, 5)).run(range(4, 5)))).record
    assert alone == {**together[4], "target": 0}
    backwards = [e.record for e in evaluator(parts(data), range(5, -1, -1)).run(range(5, -1, -1))]
    assert [{**r, "target": 5 - r["target"]} for r in backwards[::-1]] == together


def test_records_say_which_samples_made_the_episode_and_share_none(data):
    record = next(iter(evaluator(parts(data), range(1)).run(range(1)))).record
    support = {row for rows in record["support"] for row in rows}
    query = {row for rows in record["query"] for row in rows}
    assert len(support) == 6
    assert len(query) == 12
    assert not support & query
    assert len(set(record["classes"])) == 3


def test_selection_has_no_way_to_name_the_test_split(data):
    with pytest.raises(RecipeError, match=r"select\.split"):
        load({**data, "select": {"grid": {"condition.top_m": [4]}, "split": "test"}})


def test_targets_from_another_split_are_stamped(data):
    built = parts(data, "evaluate.split=val")
    assert any("not a test result" in note for note in said.notes(built.recipe, built))
    built = parts(data)
    assert not said.notes(built.recipe, built)
    assert isinstance(built.recipe, Recipe)
