"""A learner conditions a task as a run does its targets; whatever the labels and their numbers."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge import evaluation
from metaforge.errors import DataError, RecipeError
from metaforge.learner.own_task import own_task
from tests.learner.runs import CASES, WIDTH, arrays, recipe


def evaluated(monkeypatch, run: Path, target_id: int):
    """Of a target of a run, evaluated again: its batch, the thetas at the recorded steps (0 and
    J the first and last) and what the run made of its queries there."""
    from metaforge.components import Context
    from metaforge.learner.runs import parts_of, resolved_of
    from metaforge.rundir import RunDir

    parts, start = parts_of(resolved_of(run), RunDir.open(run), Context())
    thetas: list = []
    outputs: list = []

    class Seen(evaluation.Evaluator):
        def _score(self, target, params, arm):
            if arm.name == "conditional":
                thetas.append({name: value.clone() for name, value in params.items()})
                with torch.no_grad():
                    found = self.inner.predict(params, target.without_query(), target.query_x)
                outputs.append(found[0])
            return super()._score(target, params, arm)

    scores = parts.score("test", range(target_id + 1))
    seen = Seen(
        parts.recipe, parts.source, parts.inner, start, parts.bank_facts(start), scores, "test"
    )
    list(seen.run(range(target_id + 1), done=target_id))
    target = evaluation.unpadded(parts.source.batch("test", [target_id]))
    return target, thetas, outputs


def support(target):
    return target.support_x[0], target.support_y[0]


@pytest.mark.parametrize("name", CASES)
def test_a_runs_own_target_is_conditioned_as_the_run_did(made, monkeypatch, name):
    run, learner = made(name)
    target, thetas, outputs = evaluated(monkeypatch, run, 2)
    task = learner.task(*support(target), task_id=2)
    with learner.at_work():
        found = learner.conditioned(task)
        start = learner.conditioned(task, 0)
        other = learner.conditioned(learner.task(*support(target), task_id=3))
    for key, value in thetas[-1].items():
        assert torch.equal(found.theta[key], value)
        assert torch.equal(start.theta[key], thetas[0][key])
    assert any(not torch.equal(other.theta[k], v) for k, v in thetas[-1].items())
    for steps, wanted in ((None, outputs[-1]), (0, outputs[0])):
        module = learner.condition(*support(target), steps, task_id=2)
        torch.testing.assert_close(module(target.query_x[0]), wanted, rtol=1e-4, atol=1e-5)


def test_a_warm_start_from_the_cache_has_its_moments_in_place(made):
    """Names are sorted in a file, and the moments of a parameter go by its place."""
    run, _ = made("maml")
    again = metaforge.run(run / "resolved.yaml", quiet=True)["run_dir"]
    assert "from the cache" in (Path(again) / "log.txt").read_text()
    first, second = ((Path(r) / "targets.jsonl").read_text() for r in (run, again))
    assert first == second


def test_draws_are_keyed_by_the_support(made):
    _, learner = made("ls")
    x, y = np.random.default_rng(0).normal(size=(6, WIDTH)), np.array([0, 1, 2, 0, 1, 2])
    with learner.at_work():
        a, b = (learner.conditioned(learner.task(x, y)).theta for _ in range(2))
        moved = learner.conditioned(learner.task(x + 1e-6, y))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert moved.task.task_id != learner.task(x, y).task_id


@pytest.mark.parametrize(
    "labels",
    [["b", "a", "ü"], [7, -3, 40], [0.5, 0.25, 2.0], [True, False, True]],
    ids=["texts", "whole", "real", "truth"],
)
def test_labels_of_any_kind_in_any_order(made, labels):
    _, learner = made("ls")
    names = labels if len(set(labels)) == 3 else labels[:2]
    y = np.array(names)[np.arange(9) % len(names)]
    x = np.random.default_rng(0).normal(size=(9, WIDTH))
    module = learner.condition(x, y, 0)
    assert module.classes == tuple(sorted(set(names)))
    order = np.argsort(y, kind="stable")
    assert torch.equal(module.weight, learner.condition(x[order], y[order], 0).weight)


def test_unequal_shots(made):
    _, learner = made("maml")
    x = np.random.default_rng(0).normal(size=(8, WIDTH))
    module = learner.condition(x, list("aaaaabbc"))
    assert module(torch.randn(3, WIDTH)).shape == (3, 3)


def test_it_is_a_plain_module(made):
    _, learner = made("r2d2")
    x, y = np.random.default_rng(0).normal(size=(6, WIDTH)), list("abcabc")
    module, other = learner.condition(x, y), learner.condition(-x, y)
    query = torch.randn(4, WIDTH)
    before = module(query)
    assert torch.equal(copy.deepcopy(module)(query), before)
    assert not torch.equal(other(query), before)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(query), before)
    one_by_one = torch.cat([module(row[None]) for row in query])
    torch.testing.assert_close(one_by_one, before)


def test_it_does_not_change_the_learner(made):
    _, learner = made("ls")
    before = {name: value.clone() for name, value in learner.start.theta.items()}
    learner.condition(np.eye(WIDTH), list("abcabc"))
    assert all(torch.equal(learner.start.theta[name], before[name]) for name in before)


@pytest.mark.parametrize("ways", [2, 5])
def test_other_numbers_of_classes_redraw_the_bank(made, ways):
    _, learner = made("ls")
    x = np.random.default_rng(0).normal(size=(2 * ways, WIDTH))
    module = learner.condition(x, np.arange(2 * ways) % ways)
    assert module(torch.randn(3, WIDTH)).shape == (3, ways)
    bank = learner.bank(ways)
    assert bank is learner.bank(ways)
    drawn = bank.parts.source.batch("train", [0, 1])
    assert drawn.outputs == ways
    assert drawn.query_y.max() == ways - 1
    assert bank.parts.source.fingerprint != learner.parts.source.fingerprint
    own = bank.parts.source.describe_task("train", 0)["classes"]
    assert set(own) <= {str(name) for name in range(16)}  # the training classes alone


@pytest.mark.parametrize(
    ("name", "ways", "said"),
    [
        ("ls", 17, "its data make none with 17.*16 classes have enough rows"),
        ("maml", 5, "'maml' serves 3 alone"),
        ("uncertain", 5, "learned for the run's own bank"),
    ],
)
def test_ways_that_cannot_be(made, name, ways, said):
    _, learner = made(name)
    x = np.random.default_rng(0).normal(size=(ways, WIDTH))
    with pytest.raises(DataError, match=said):
        learner.condition(x, np.arange(ways))


def test_regression_takes_real_targets(made):
    _, learner = made("regression")
    x = np.linspace(-1, 1, 7)[:, None]
    flat, column = (learner.condition(x, y) for y in (x[:, 0] ** 2, x**2))
    assert flat.classes is None
    query = torch.randn(3, 1)
    assert torch.equal(flat(query), column(query))
    assert flat(query).shape == (3, 1)


@pytest.mark.parametrize(
    ("name", "x", "y", "said"),
    [
        ("ls", np.eye(WIDTH), list("aaaaaa"), "one class alone"),
        ("ls", np.eye(WIDTH), list("ab"), "y has 2 rows, x has 6"),
        ("ls", np.eye(4), list("abab"), r"samples of shape \[n, 6\]"),
        ("ls", np.full((6, WIDTH), np.nan), list("ababab"), "not finite in 6 rows, first 0, 1"),
        ("ls", np.eye(WIDTH), [1.0, 2.0, np.nan, 1, 2, 2], "no label in row 2"),
        ("ls", np.eye(WIDTH), ["a", None, "b", "a", "b", "a"], "no label in row 1"),
        ("ls", np.eye(WIDTH), np.array(["a", 1, "b", 2, "a", 1], object), "mixes kinds"),
        ("ls", np.eye(WIDTH), np.linspace(0, 0.7, 6), "looks like a target of regression"),
        ("ls", np.eye(WIDTH), np.eye(WIDTH), "expected a class label for each"),
        ("ls", np.array([list("abcdef")] * 6), list("ababab"), "expected numbers"),
        ("ls", [[1.0], [2.0, 3.0]], list("ab"), "does not make one array"),
        ("ls", np.zeros((0, WIDTH)), [], "y has 0 rows"),
        ("regression", np.eye(1), ["a"], "is of regression"),
        ("regression", np.ones((2, 1)), [1.0, np.inf], "y is not finite in row 1"),
        ("regression", np.ones((2, 1)), np.ones((2, 2)), "expected 1 numbers a sample"),
    ],
)
def test_supports_that_cannot_be_used(made, name, x, y, said):
    _, learner = made(name)
    with pytest.raises(DataError, match=said):
        learner.condition(x, y)


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3"])
def test_steps_are_a_number(made, steps):
    _, learner = made("ls")
    with pytest.raises(RecipeError, match="steps is"):
        learner.condition(np.eye(WIDTH), list("ababab"), steps)


def test_threads_are_put_back(made):
    _, learner = made("ls")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    learner.condition(np.eye(WIDTH), list("abcabc"))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_data_that_changed_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    run = metaforge.run(recipe(arrays(tmp_path)), "meta_train.steps=2", quiet=True)["run_dir"]
    arrays(tmp_path, seed=1)
    with pytest.raises(DataError, match="its data have changed since it was made"):
        metaforge.load(run)


@pytest.mark.parametrize("source", ["nothing/here", 3])
def test_what_is_no_learner_is_told(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="bundle"):
        metaforge.load(source)


def test_a_digest_of_the_task_tells_tasks_apart():
    from metaforge.components import Context
    from metaforge.tasks import TaskShape

    shape, context = TaskShape("classification", (2,), 2, 1, 1), Context()
    x, y = np.eye(2), [0, 1]
    ids = {
        own_task(x, y, shape, context).task_id,
        own_task(x[::-1].copy(), y, shape, context).task_id,
        own_task(np.vstack([x, x]), y * 2, shape, context).task_id,
    }
    assert len(ids) == 3
    assert own_task(x, ["a", "b"], shape, context).task_id in ids  # names of classes say nothing


def test_the_order_of_samples_names_no_other_task(made):
    _, learner = made("ls")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(9, *learner.shape.input_shape)).astype("float32")
    y, order = np.arange(9) % 3, rng.permutation(9)
    one, other = learner.task(x, y), learner.task(x[order], y[order])
    assert one.task_id == other.task_id
    assert one.task_id != learner.task(x, (y + (np.arange(9) == 4)) % 3).task_id
    assert one.task_id != learner.task(x + np.float32(1e-3), y).task_id
