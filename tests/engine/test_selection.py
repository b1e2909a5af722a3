"""Selection: halving finds the best, keeps its budget, resumes and shares; nothing from test."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaforge
from metaforge import selection, stages
from metaforge.components import Context
from metaforge.errors import DamagedFile, NumericError, RecipeError
from metaforge.pipeline import resume
from metaforge.recipe import load
from metaforge.recipe.trials import Trials
from metaforge.report import render_text
from metaforge.scoring import Scorer
from metaforge.selection_table import Candidate, Ranking, table
from metaforge_kernels.gaussian import Gaussian
from metaforge_sinusoids.source import Sinusoids
from metaforge_weightings.tasml import Tasml
from tests import sealed
from tests.small import SMALL

QUICK = {
    **SMALL,
    "inner": {**SMALL["inner"], "steps": 1, "model": {"use": "mlp", "hidden": [4]}},
    "meta_train": {**SMALL["meta_train"], "steps": 20},
    "condition": {"steps": 2, "batch": 2, "top_m": 10},
    "evaluate": {"targets": 2, "workers": 1},
}
GRID = {
    "condition.steps": [1, 2],
    "kernel.scale": [0.5, 4.0],
    "weighting.lambda": [0.01, 1.0],
    "condition.top_m": [3, 20],
}
SELECT = {"grid": GRID, "targets": 12, "eta": 2}  # 8 combinations on 8, 4 on 12
COST = 8 * 8 + 4 * 4


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))


def run(*overrides: str, **select: Any) -> dict[str, Any]:
    return metaforge.run({**QUICK, "select": {**SELECT, **select}}, *overrides, quiet=True)


def read(results: dict[str, Any], name: str) -> str:
    return (Path(results["run_dir"]) / name).read_text()


@pytest.fixture
def conditioned(monkeypatch):
    """(combination, position) of every target that is conditioned on validation."""
    found = []
    condition = selection._Bench._condition

    def counted(self, positions):
        recipe = self.parts.recipe
        named = json.dumps(
            [recipe.kernel.options, recipe.weighting.options, recipe.condition.top_m]
        )
        found.extend((named, position) for position in positions)
        return condition(self, positions)

    monkeypatch.setattr(selection._Bench, "_condition", counted)
    return found


def toy(monkeypatch, score) -> None:
    """``score(scale, top_m, position, step)`` in the place of conditioning."""

    def conditions(self, positions):
        kernel, condition = self.parts.recipe.kernel, self.parts.recipe.condition
        scale, top_m = kernel.options["scale"], condition.top_m
        steps = self.trials.steps
        return [[score(scale, top_m, p, step) for step in steps] for p in positions]

    monkeypatch.setattr(selection._Bench, "_condition", conditions)


WIDE = {
    "grid": {"kernel.scale": [1, 2, 3, 4, 5, 6], "condition.top_m": [1, 2, 3, 4, 5, 6]},
    "targets": 50,
    "eta": 3,
}


def error(scale, top_m, position, step):
    """Least at scale 4, top_m 3; targets differ a lot, all alike, and a little, each."""
    noise = np.random.default_rng([int(scale), top_m, position]).normal()
    common = 100 * np.random.default_rng(position).normal()
    return (scale - 4) ** 2 + (top_m - 3) ** 2 + 0.5 * noise + common


def test_halving_finds_the_best_with_a_third_of_the_work(monkeypatch):
    toy(monkeypatch, error)
    found = run(**WIDE)
    assert found["selected"] == {"kernel.scale": 4, "condition.top_m": 3, "condition.steps": 2}
    assert found["selection"]["conditionings"] == 36 * 8 + 12 * 12 + 4 * 30 < 36 * 50 / 3
    assert [len(row["options"]) for row in found["selection"]["tried"]] == [2] * 36


def test_values_given_twice_take_no_more_than_their_places(monkeypatch):
    toy(monkeypatch, lambda scale, top_m, position, step: 1.0)
    grid = {"kernel.scale": [4, 4, 4], "condition.top_m": [3, 3, 3, 5]}
    found = run(grid=grid, targets=30, eta=3)
    assert found["selection"]["conditionings"] == 12 * 8 + 4 * 22
    assert found["selected"]["condition.top_m"] == 3


def test_the_unpaired_would_not_find_it(monkeypatch):
    """The specimen: each combination on targets of its own."""

    def unpaired(scale, top_m, position, step):
        return error(scale, top_m, position + 1000 * int(scale) + 100 * top_m, step)

    toy(monkeypatch, unpaired)
    assert run(**WIDE)["selected"]["kernel.scale"] != 4


def test_every_conditioning_is_done_once_and_the_budget_is_exact(conditioned):
    found = run()
    assert len(conditioned) == len(set(conditioned)) == COST
    assert found["selection"]["conditionings"] == COST
    by_combination = [name for name, position in conditioned if position == 11]
    assert len(by_combination) == 4


@pytest.mark.parametrize("budget", [24, 40, 79, 80])
def test_a_budget_is_kept(conditioned, budget):
    found = run(f"select.budget={budget}")
    assert found["selection"]["conditionings"] == len(conditioned) <= budget
    part = [note for note in found["notes"] if "of the grid's 8 combinations are tried" in note]
    assert len(part) == (budget < COST)


def test_a_kernel_and_a_factor_are_made_once(monkeypatch):
    fits: dict[str, list[Any]] = {"kernel": [], "weighting": [], "score": []}

    def counted(holder, name, kind, of):
        original = getattr(holder, name)

        def call(self, *arguments, **more):
            fits[kind].append(of(self))
            return original(self, *arguments, **more)

        monkeypatch.setattr(holder, name, call)

    counted(Gaussian, "fit", "kernel", lambda self: self.options.scale)
    counted(Tasml, "fit", "weighting", lambda self: self.options.lambda_)
    counted(Scorer, "score", "score", lambda self: self.weighting.options.lambda_)
    chosen = run()["selected"]
    last = chosen["kernel.scale"], chosen["weighting.lambda"]
    # The last of each is for the targets of the run itself.
    assert fits["kernel"] == [0.5, 4.0, last[0]]
    assert fits["weighting"] == [0.01, 1.0, 0.01, 1.0, last[1]]
    assert len(fits["score"]) == 8 + 1


def test_parts_share_only_what_is_fitted_alike():
    resolved = load(SMALL)
    parts = stages.Parts.build(resolved.recipe, Context())
    _ = parts.weighting_state

    def shared(**values):
        keys = {key.replace("__", "."): value for key, value in values.items()}
        made = vars(parts.with_recipe(resolved.with_values(keys).recipe))
        return {name for name in ("gram", "weighting_state") if name in made}

    assert shared(condition__top_m=3) == {"gram", "weighting_state"}
    assert shared(weighting__lambda=0.5) == {"gram"}
    assert shared(kernel__scale=2.0) == set()
    assert shared(kernel__use="laplace") == set()


def test_shared_fits_give_what_fresh_ones_do(monkeypatch):
    """Each combination's scores are those of a run with it alone."""
    found = run()
    lines = [json.loads(line) for line in read(found, "select.jsonl").splitlines()]
    monkeypatch.setenv("METAFORGE_CACHE", "elsewhere")
    for line in (lines[3], lines[6]):
        grid = {key: [value] for key, value in line["options"].items()}
        alone = run(grid={**grid, "condition.steps": GRID["condition.steps"]})
        (one,) = [json.loads(text) for text in read(alone, "select.jsonl").splitlines()]
        assert one["scores"][:8] == line["scores"]


def test_a_run_killed_at_any_line_goes_on_with_the_same_bits(monkeypatch):
    whole = run(grid={"kernel.scale": [0.5, 4.0], "condition.top_m": [3, 20]})
    folder = Path(whole["run_dir"])
    lines = read(whole, "select.jsonl").splitlines(keepends=True)
    table_ = read(whole, "select.json")
    assert len(lines) == 4 + 2
    monkeypatch.setattr(selection, "keep", lambda *arguments: None)
    for kept in range(len(lines) + 1):
        shutil.rmtree("cache/select", ignore_errors=True)
        half = lines[kept][:20] if kept < len(lines) else ""
        (folder / "select.jsonl").write_text("".join(lines[:kept]) + half)
        (folder / "select.json").unlink()
        again = resume(folder, quiet=True)
        assert read(whole, "select.jsonl") == "".join(lines)
        assert read(whole, "select.json") == table_
        assert again["selected"] == whole["selected"]


def test_lines_of_another_recipe_are_refused():
    folder = Path(run()["run_dir"])
    path = folder / "select.jsonl"
    for line in (lines := sealed.records(path)):
        if line["options"]["condition.top_m"] == 20:
            line["options"]["condition.top_m"] = 21
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DamagedFile, match=r"select\.jsonl: not of this recipe"):
        resume(folder, quiet=True)


def log(results: dict[str, Any]) -> str:
    return read(results, "log.txt")


def test_another_run_takes_the_selection_from_the_cache(conditioned):
    first = run()
    conditioned.clear()
    again = run("evaluate.targets=3", "evaluate.controls=[random_m]")
    assert not conditioned
    assert f"select: {COST} conditionings from the cache" in log(again)
    assert "from the cache" not in log(first).split("select", 1)[1]
    for name in ("select.jsonl", "select.json"):
        assert read(again, name) == read(first, name)


def test_a_wider_grid_takes_its_part_from_the_cache(conditioned):
    first = run()
    done = set(conditioned)
    conditioned.clear()
    wider = run(grid={**GRID, "condition.top_m": [3, 20, 50]})
    assert conditioned
    assert not done & set(conditioned)
    assert wider["selection"]["conditionings"] > len(conditioned)
    shutil.rmtree("cache/select")
    without = run(grid={**GRID, "condition.top_m": [3, 20, 50]})
    assert read(without, "select.json") == read(wider, "select.json") != read(first, "select.json")


OTHERS = {
    "seed": "seed=1",
    "condition": "condition.batch=5",
    "kernel": "kernel.embedding=mean",
    "J": "select.grid.condition.steps=[1, 3]",
    "bank": "bank.size=150",
    "phase 1": "meta_train.steps=40",
    "data": "data.shots=6",
}


def test_the_cache_is_not_taken_where_anything_differs():
    grid = {"kernel.scale": [0.5, 4.0]}
    run(grid=grid)
    for what, other in OTHERS.items():
        assert "conditionings from the cache" not in log(run(other, grid=grid)), what
    assert "24 conditionings from the cache" in log(run(grid=grid))


@pytest.mark.parametrize("content", ["", '{"scores": [[NaN]]}'], ids=["torn", "not a number"])
def test_a_damaged_file_of_the_cache_is_made_anew(content):
    first = run()
    whole = {path: path.read_bytes() for path in Path("cache/select").iterdir()}
    for path in whole:
        path.write_text(content)
    again = run()
    assert "is damaged, making it anew" in log(again)
    assert again["selection"] == first["selection"]
    assert {path: path.read_bytes() for path in whole} == whole


def test_what_validate_has_no_time_for_is_found_before_the_work(monkeypatch):
    grid = {
        "condition.negative": ["clip", "keep"],
        "condition.sampling": ["uniform", "proportional"],
    }
    with pytest.raises(RecipeError) as by_validate:
        run(grid=grid)
    monkeypatch.setattr("metaforge.recipe.grid.MAX_COMBINATIONS", 2)
    monkeypatch.setattr(selection, "select", None)  # would fail if it were called
    with pytest.raises(RecipeError) as by_run:
        run(grid=grid)
    assert str(by_run.value) == str(by_validate.value)


def test_a_cache_of_no_use_is_told_once(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "file"))
    assert log(run()).count("not kept for the next run, as " + str(tmp_path / "file/select")) == 1


def other_batches(monkeypatch, split: str) -> None:
    """Other inputs in every task of a split."""
    batch = Sinusoids.batch

    def changed(self, asked, *arguments, **more):
        found = batch(self, asked, *arguments, **more)
        if asked != split:
            return found
        return replace(found, support_x=-found.support_x, query_y=found.query_y + 3)

    monkeypatch.setattr(Sinusoids, "batch", changed)


@pytest.mark.parametrize("split", ["test", "val"])
def test_other_test_data_change_no_choice_and_other_validation_data_do(monkeypatch, split):
    first = run()
    other_batches(monkeypatch, split)
    shutil.rmtree("cache")
    other = run()
    same = split == "test"
    for name in ("select.jsonl", "select.json"):
        assert (read(other, name) == read(first, name)) == same
    assert not same or other["conditional"]["mean"] != first["conditional"]["mean"]


def test_targets_of_selection_are_those_after_phase_1_s_own(monkeypatch):
    asked = []
    score = stages.Parts.score

    def noted(self, split, ids):
        asked.append((split, ids))
        return score(self, split, ids)

    monkeypatch.setattr(stages.Parts, "score", noted)
    run(grid={"condition.top_m": [3, 20]})
    assert asked == [("val", range(10, 22)), ("val", range(10, 22)), ("test", range(2))]


def ranked(curves: dict[int, list[float]], steps: list[int], lower: bool) -> dict[str, Any]:
    """The table of candidates by scale, each with its curve on one target."""
    grid = {"kernel.scale": list(curves), "condition.steps": steps}
    select = {"grid": grid, "targets": 1}
    trials = Trials(load({**SMALL, "select": select}).recipe)
    candidates = [Candidate(options, rung=1) for options in trials.combinations]
    for candidate in candidates:
        candidate.take({"scores": [curves[candidate.options["kernel.scale"]]]})
    return table(candidates, Ranking(trials.steps, lower), trials)


def test_the_first_of_ties_is_taken_and_the_fewest_steps():
    curves = {4: [0.2, 0.7, 0.7], 1: [0.7, 0.7, 0.1], 2: [0.3, 0.1, 0.2]}
    found = ranked(curves, [1, 3, 6], lower=False)
    assert found["chosen"] == {"kernel.scale": 4, "condition.steps": 3}
    assert [row["options"]["kernel.scale"] for row in found["tried"]] == [4, 1, 2]
    assert [row["steps"] for row in found["tried"]] == [3, 1, 1]
    found = ranked(curves, [1, 3, 6], lower=True)
    assert found["chosen"] == {"kernel.scale": 1, "condition.steps": 6}
    assert [row["options"]["kernel.scale"] for row in found["tried"]] == [1, 2, 4]


def test_what_a_dropped_one_has_over_the_chosen_is_on_its_own_targets(monkeypatch):
    toy(monkeypatch, error)
    rows = run(**WIDE)["selection"]["tried"]
    assert rows[0]["minus_chosen"] == 0
    dropped = [row for row in rows if row["dropped_in_rung"] == 1]
    assert len(dropped) == 24
    for row in dropped:
        scale, top_m = row["options"]["kernel.scale"], row["options"]["condition.top_m"]
        apart = [error(scale, top_m, p, 6) - error(4, 3, p, 6) for p in range(8)]
        assert row["minus_chosen"] == pytest.approx(np.mean(apart))


EDGES = {
    "in the middle": ({"kernel.scale": [1, 4, 16]}, 4, 3, []),
    "least": ({"kernel.scale": [4, 8, 16]}, 4, 3, ["kernel.scale: 4, the least value tried"]),
    "greatest": ({"kernel.scale": [1, 2, 4]}, 4, 3, ["kernel.scale: 4, the greatest value tried"]),
    "two values have none": ({"kernel.scale": [1, 4]}, 4, 3, []),
    "nor have they given twice": ({"kernel.scale": [1, 4, 4]}, 4, 3, []),
    "the whole bank": ({"condition.top_m": [10, 50, 200]}, 1, 200, []),
    "most of the bank": ({"condition.top_m": [10, 50, 199]}, 1, 199, ["condition.top_m: 199"]),
}


@pytest.mark.parametrize(("grid", "scale", "top_m", "told"), EDGES.values(), ids=EDGES)
def test_the_edge_of_a_grid_is_warned_of(monkeypatch, grid, scale, top_m, told):
    toy(monkeypatch, lambda s, m, position, step: (s - scale) ** 2 + (m - top_m) ** 2)
    found = run(grid=grid)
    warned = [line for line in found["warnings"] if line.startswith("selection chose")]
    assert len(warned) == len(told)
    assert all(text in line for text, line in zip(told, warned, strict=True))
    assert all(f"warning: {line}" in render_text(Path(found["run_dir"])) for line in warned)


def test_zero_is_no_edge():
    assert ranked({1: [0.9, 0.1, 0.1]}, [0, 3, 6], lower=False)["warnings"] == []
    told = ranked({1: [0.1, 0.1, 0.9]}, [0, 3, 6], lower=False)["warnings"]
    assert told[0].startswith("selection chose condition.steps: 6, the greatest value tried")


def failing(bad):
    def score(scale, top_m, position, step):
        if bad(scale, position):
            raise NumericError(f"target {position}: not finite")
        return error(scale, top_m, position, step)

    return score


@pytest.mark.parametrize("from_target", [0, 9], ids=["first rung", "second rung"])
def test_a_combination_that_fails_is_out_and_told(monkeypatch, from_target):
    toy(monkeypatch, failing(lambda scale, position: scale == 4 and position >= from_target))
    found = run(**WIDE)
    assert found["selected"]["kernel.scale"] != 4
    failed = [row for row in found["selection"]["tried"] if row["failed"]]
    assert failed == found["selection"]["tried"][-len(failed) :]
    assert {row["options"]["kernel.scale"] for row in failed} == {4}
    assert f"target {from_target}: not finite" in failed[0]["failed"]


def test_where_all_fail_the_first_reason_is_told(monkeypatch):
    toy(monkeypatch, failing(lambda scale, position: True))
    with pytest.raises(NumericError, match=r"none of the 36 combinations .* target 0: not finite"):
        run(**WIDE)


def test_signatures_are_chosen_too():
    found = run(grid={"kernel.embedding": ["mean", "joint"], "condition.top_m": [3, 5]})
    assert found["selected"]["kernel.embedding"] in ("mean", "joint")
    assert len(found["selection"]["tried"]) == 4


def test_options_that_say_validate_are_chosen_and_reported():
    recipe = {**QUICK, "weighting": {"lambda": "validate"}}
    found = metaforge.run(recipe, "kernel.bandwidth=validate", "select.targets=8", quiet=True)
    assert set(found["selected"]) == {"kernel.scale", "weighting.lambda", "condition.steps"}
    assert len(found["selection"]["tried"]) == 20
    text = render_text(Path(found["run_dir"]))
    assert "selection: mean squared error, validation targets; 20 of 20 combinations" in text
    assert "and 8 more, in select.json" in text
    assert "20 on 8 targets: 160 conditionings of 2 steps" in log(found)
    again = metaforge.run(Path(found["run_dir"]) / "resolved.yaml", quiet=True)
    assert read(again, "select.json") == read(found, "select.json")
