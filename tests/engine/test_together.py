"""Many targets at once give what they give one by one, in the same records and order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metaforge
from metaforge import stages, target_batch, together
from metaforge.arms import BankFacts
from metaforge.components import Context
from metaforge.errors import NumericError, PluginError, RecipeError
from metaforge.evaluation import Evaluator
from metaforge.metatrain import WarmStart
from metaforge.pipeline import resume
from metaforge.recipe import load
from tests.engine.toys import Points, Quadratic, recipe

MLP = {"model": {"use": "mlp", "hidden": [6]}, "steps": 2, "lr": 1.0}
INNERS: dict[str, dict[str, Any]] = {
    "maml": {"use": "maml", **MLP},
    "maml, first order": {"use": "maml", **MLP, "order": 1},
    "ls": {"use": "ls", "hidden": 6},
    "r2d2": {"use": "r2d2", "hidden": 6},
    "leo": {"use": "leo", "num_latents": 4, "inner_lr_init": 0.2, "inner_unroll_length": 2},
}
CONTROLS = ["random_m", "target_only", "uncertainty", "oracle"]
#: The last batch is a target alone.
TARGETS, BATCH = 4, 3


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> dict[str, Any]:
    """Two groups of classes, 1 to 3 shots and 2 or 3 queries a class."""
    folder = tmp_path_factory.mktemp("together")
    rng = np.random.default_rng(0)
    group, y = np.arange(30) % 2, np.repeat(np.arange(30), 8)
    x = rng.normal(size=(30, 16))[y] + rng.normal(size=(240, 16))
    np.savez(folder / "d.npz", X=x.astype("f4"), y=y, g=group)
    groups = {"group": "g", "within": 0.5}
    data = {"use": "arrays", "path": str(folder / "d.npz"), "normalize": "l2"}
    return {
        "precision": "float64",
        "output": str(folder / "runs"),
        "data": {**data, **groups, "ways": 3, "shots": [1, 3], "queries": [2, 3]},
        "bank": {"size": 24},
        "meta_train": {"steps": 3, "batch": 4, "validate_every": 3, "validation_targets": 4},
        "condition": {"steps": 4, "batch": 4, "top_m": 5, "record_at": [0, 1, 4]},
        "evaluate": {"targets": TARGETS, "controls": CONTROLS, "workers": 1},
    }


@pytest.fixture(autouse=True)
def _cache(base, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(Path(base["output"]).parent / "cache"))


def parts_of(base: dict[str, Any], inner: str, *overrides: str) -> stages.Parts:
    found = load({**base, "inner": INNERS[inner]}, overrides).recipe
    return stages.Parts.build(found, stages.context_for(found, Context()))


class Watched(Evaluator):
    """Keeps theta of every target, arm and recorded step."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.seen: dict[tuple[int, str], list[dict[str, torch.Tensor]]] = {}

    def _score(self, target, params, arm):
        key = int(target.task_ids[0]), arm.name
        self.seen.setdefault(key, []).append({k: v.clone() for k, v in params.items()})
        return super()._score(target, params, arm)

    def _arm_together(self, targets, arms):
        self.at = [(int(i), arm.name) for i, arm in zip(targets.task_ids, arms, strict=True)]
        return super()._arm_together(targets, arms)

    def _scores(self, targets, params):
        for t, key in enumerate(self.at):
            self.seen.setdefault(key, []).append({k: v[t].clone() for k, v in params.items()})
        return super()._scores(targets, params)


def evaluated(parts: stages.Parts, batch: int) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
    """The records of all targets, and theta wherever it was evaluated."""
    start = WarmStart(parts.theta)
    parts.theta_hat = parts.theta
    ids = range(TARGETS)
    scores, facts = parts.score("test", ids), parts.bank_facts(start)
    made = Watched(parts.recipe, parts.source, parts.inner, start, facts, scores, "test", 1, batch)
    return [one.record for one in made.run(ids)], made.seen


def check_alike(parts: stages.Parts) -> None:
    (alone, one_by_one), (found, at_once) = evaluated(parts, 1), evaluated(parts, BATCH)
    assert at_once.keys() == one_by_one.keys()
    for key, curve in one_by_one.items():
        for own, expected in zip(at_once[key], curve, strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-10)
    for record, expected in zip(found, alone, strict=True):
        assert list(record) == list(expected)
        assert list(record["curves"]) == list(expected["curves"])
        for arm, curve in expected["curves"].items():
            assert record["curves"][arm] == pytest.approx(curve, rel=1e-9)
        rest = [{k: v for k, v in r.items() if k != "curves"} for r in (record, expected)]
        assert rest[0] == rest[1]


@pytest.mark.parametrize("inner", INNERS)
def test_every_arm_of_every_target_is_as_alone(base, inner):
    parts = parts_of(base, inner, "evaluate.without_target_term=true")
    assert target_batch.obstacle(parts.inner, "cpu") is None
    check_alike(parts)


@pytest.mark.parametrize(
    "changes",
    [
        ("condition.optimizer.clip_value=1e-3", "condition.optimizer.clip_norm=1e-3"),
        ("condition.optimizer.use=sgd", "condition.optimizer.momentum=0.9"),
        ("condition.sampling=proportional",),
        ("condition.weights_in_loss=topm-uniform", "weighting.lambda=1.0"),
        ("weighting.use=uncertainty", "evaluate.controls=[target_only]"),
        ("condition.beta1=0.0", "evaluate.controls=[]"),
    ],
    ids=lambda changes: changes[0],
)
def test_whatever_the_options(base, changes):
    check_alike(parts_of(base, "ls", *changes))


def test_gathering_in_pieces_changes_nothing(base, monkeypatch):
    monkeypatch.setattr(together, "_HELD_BYTES", 1)
    check_alike(parts_of(base, "leo"))


# -- broken specimens ----------------------------------------------------------------------


def test_targets_that_share_their_draws_are_seen(base, monkeypatch):
    own = together.target_draws
    monkeypatch.setattr(together, "target_draws", lambda recipe, recall, i: own(recipe, recall, 0))
    with pytest.raises(AssertionError):
        check_alike(parts_of(base, "ls"))


def test_targets_that_share_their_noise_are_seen(base, monkeypatch):
    own = together.target_noise
    monkeypatch.setattr(
        together, "target_noise", lambda inner, seed, i, *more: own(inner, seed, 0, *more)
    )
    with pytest.raises(AssertionError):
        check_alike(parts_of(base, "leo"))


def test_a_mean_over_targets_in_the_place_of_their_own_losses_is_seen(base, monkeypatch):
    own = together.stacked.losses

    def pooled(*arguments):
        found = own(*arguments)
        return found.mean(0, keepdim=True).expand_as(found)

    monkeypatch.setattr(together.stacked, "losses", pooled)
    with pytest.raises(AssertionError):
        check_alike(parts_of(base, "ls"))


# -- steps that are not finite ---------------------------------------------------------------


class Fragile(Quadratic):
    """Not finite on bank task 3; the penalty reaches theta."""

    vmappable = True

    def losses(self, params, tasks, **kind):
        found = super().losses(params, tasks, **kind)
        return found * torch.where(tasks.task_ids == 3, torch.inf, 1.0).to(found.dtype)


SOURCE = Points()


def run_points(inner: Quadratic, batch: int, **sections: Any) -> list[dict[str, Any]]:
    sgd = {"use": "sgd", "lr": 0.3}
    settings = {"steps": 12, "batch": 2, "optimizer": sgd, "record_at": [0, 5, 12]}
    made = recipe(condition=settings, evaluate={"controls": ["random_m"]}, **sections)
    theta = inner.init(SOURCE.shape, torch.Generator())
    start, groups = WarmStart(theta), np.arange(20) % 2
    facts = BankFacts(20, groups)
    found = Evaluator(made, SOURCE, inner, start, facts, None, "test", 1, batch).run(range(6))
    return [one.record for one in found]


def test_steps_are_skipped_target_by_target():
    alone, at_once = (run_points(Fragile(), batch, on_nan="skip") for batch in (1, 4))
    counts = [record.get("skipped_steps", {}).get("conditional", 0) for record in alone]
    assert len(set(counts)) > 1, "targets skip unequally often"
    for record, expected in zip(at_once, alone, strict=True):
        assert record.get("skipped_steps") == expected.get("skipped_steps")
        assert record["curves"]["conditional"] == pytest.approx(
            expected["curves"]["conditional"], rel=1e-9
        )


def test_a_step_that_is_not_finite_stops_with_the_words_of_one_by_one():
    said = []
    for batch in (1, 4):
        with pytest.raises(NumericError) as caught:
            run_points(Fragile(), batch)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "task 3" in said[0]


class CutsTheGraph(Fragile):
    def losses(self, params, tasks, **kind):
        held = {name: value.detach() for name, value in params.items()}
        return super().losses(held, tasks, **kind) + 0 * params["theta"].sum()


def test_a_cut_graph_is_told_as_one_by_one():
    for batch in (1, 4):
        with pytest.raises(PluginError, match=r"conditioning target 0 .* cuts the graph"):
            run_points(CutsTheGraph(), batch)


class NeverAtOnce(Quadratic):
    """Reads a number within its losses, which vmap refuses: it does not declare vmappable."""

    def losses(self, params, tasks, **kind):
        assert float(params["theta"].detach().sum()) < 1e9
        return super().losses(params, tasks, **kind)


def test_an_algorithm_that_does_not_declare_it_goes_one_by_one():
    made = recipe(evaluate={"batch": 4})
    inner = NeverAtOnce()
    theta = inner.init(SOURCE.shape, torch.Generator())
    assert target_batch.count(made, SOURCE, inner, theta, "cpu") == 1
    assert "vmappable" in target_batch.told(made, inner, "cpu", 1)
    fits = Fragile()
    assert target_batch.count(made, SOURCE, fits, theta, "cpu") == 4
    assert target_batch.told(made, fits, "cpu", 4) == "targets at once 4"
    assert target_batch.count(recipe(), SOURCE, fits, theta, "cpu") == 1
    fits.transductive = True
    assert target_batch.count(made, SOURCE, fits, theta, "cpu") == 1


def test_a_number_that_is_not_heeded_is_noted(base):
    method = {**base, "inner": {"use": "learn2learn", "model": "linear"}}
    found = metaforge.run(method, "evaluate.batch=4", quiet=True)
    assert any("evaluate.batch: 4 is not heeded here: " in note for note in found["notes"])


# -- how many ------------------------------------------------------------------------------


def test_as_many_as_fit_into_half_of_what_is_free():
    assert target_batch.fitting(None, 10) == 1
    assert target_batch.fitting(1000, 100) == 5
    assert target_batch.fitting(10, 100) == 1
    assert target_batch.fitting(10**9, 1) == 64


def test_no_rank_is_left_without_its_share():
    made = recipe(evaluate={"targets": 50, "runs": 2})
    assert [target_batch.share(made, ranks) for ranks in (1, 2, 3, 8)] == [100, 50, 34, 13]


def test_the_estimate_is_above_what_a_steps_graph_keeps(base):
    for inner in INNERS:
        parts = parts_of(base, inner)
        estimate = target_batch.estimate(parts.recipe, parts.source, parts.inner, parts.theta)
        kept = {}

        def keep(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        tasks = parts.source.batch("train", range(5))
        noise = parts.inner.draw_noise(torch.Generator().manual_seed(0), 5)
        theta = {k: v.clone().requires_grad_() for k, v in parts.theta.items()}
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = parts.inner.losses(theta, tasks, training=True, noise=noise)
        assert value.requires_grad
        assert sum(kept.values()) < estimate < 100 * sum(kept.values())


# -- whole runs ----------------------------------------------------------------------------


def without_clock(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(path) / "targets.jsonl").read_text().splitlines()]


def test_a_run_at_once_gives_the_results_of_one_by_one_and_says_so(base):
    method = {**base, "inner": INNERS["ls"]}
    alone = metaforge.run(method, quiet=True)
    found = metaforge.run(method, f"evaluate.batch={BATCH}", quiet=True)
    assert f"targets at once {BATCH}" in (Path(found["run_dir"]) / "log.txt").read_text()
    assert "targets at once 1," in (Path(alone["run_dir"]) / "log.txt").read_text()
    for name in ("unconditional", "conditional"):
        assert found[name]["mean"] == pytest.approx(alone[name]["mean"], rel=1e-9)
    few = metaforge.run(method, "evaluate.batch=50", "evaluate.workers=2", quiet=True)
    assert any("leaves some of the 2 processes without targets" in n for n in few["notes"])
    assert not any("evaluate.batch" in note for note in found["notes"])
    again = metaforge.run(method, f"evaluate.batch={BATCH}", "evaluate.workers=2", quiet=True)
    assert without_clock(again["run_dir"]) == without_clock(found["run_dir"])


def test_a_stopped_run_goes_on_with_the_same_bits(base):
    method = {**base, "inner": INNERS["leo"]}
    whole = metaforge.run(method, f"evaluate.batch={BATCH}", quiet=True)
    folder = Path(whole["run_dir"])
    expected = (folder / "targets.jsonl").read_text()
    for name in ("targets.jsonl", "timings.jsonl"):
        kept = (folder / name).read_text().splitlines(keepends=True)[: BATCH + 1]
        (folder / name).write_text("".join(kept))
    resume(folder, quiet=True)
    assert (folder / "targets.jsonl").read_text() == expected


def test_the_number_is_no_change_for_a_run_that_is_resumed(base):
    found = metaforge.run({**base, "inner": INNERS["ls"]}, quiet=True)
    with pytest.raises(RecipeError, match=r"evaluate\.workers alone"):
        resume(Path(found["run_dir"]), "evaluate.batch=2")
