"""``mixture``: shares, projections, what sources must have in common, and how recipes say it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.recipe import load as load_recipe
from metaforge.tasks import TaskSource
from metaforge.testing import datasets as laws
from metaforge_mixture.options import MixtureOptions
from metaforge_mixture.projection import fit, moments
from metaforge_mixture.shares import shares
from metaforge_mixture.source import MixtureTasks, ProjectedTasks

CLASSES, ROWS = 30, 10


def arrays(columns: int, seed: int, prefix: str = "") -> dict:
    """Options of a source whose classes differ in their means, along ``columns`` columns."""
    random = np.random.default_rng(seed)
    centres = 3 + random.normal(size=(CLASSES, columns))
    x = np.repeat(centres, ROWS, 0) + 0.5 * random.normal(size=(CLASSES * ROWS, columns))
    y = np.repeat([f"{prefix or seed} {c}" for c in range(CLASSES)], ROWS)
    return {"use": "arrays", "x": x.astype(np.float32), "y": y}


def make(seed: int = 0, dtype: str = "float32", **options) -> MixtureTasks:
    given = {"ways": 3, "shots": 2, "queries": 3, **options}
    if given.get("projection") != "none":
        given.setdefault("width", 4)
    sources = given.pop("sources", {"narrow": arrays(6, 1), "wide": arrays(9, 2)})
    context = Context(seed=seed, dtype=dtype)
    return metaforge.create("dataset", "mixture", context=context, sources=sources, **given)


def options(**given) -> MixtureOptions:
    sources = {"a": {"use": "x"}, "b": {"use": "y"}}
    return MixtureOptions(**{"sources": sources, "width": 4, **given})


def source_of(columns: int = 9, seed: int = 2, **given) -> TaskSource:
    sizes = {"ways": 3, "shots": 2, "queries": 3, **given}
    described = {key: value for key, value in arrays(columns, seed).items() if key != "use"}
    context = Context(dtype="float64")
    return metaforge.create("dataset", "arrays", context=context, **described, **sizes)


# -- tasks ---------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [2, (1, 3)], ids=["2 shots", "1 to 3 shots"])
@pytest.mark.parametrize("projection", ["pca", "discriminant"])
def test_the_laws_of_task_sources_hold(shots, projection):
    laws.check_task_source(lambda seed: make(seed, shots=shots, projection=projection), tasks=60)


def test_a_task_is_the_task_of_that_number_of_one_source():
    source = make(projection="none", sources={"a": arrays(4, 1), "b": arrays(4, 2)})
    ids = range(40)
    batch, groups = source.batch("train", ids), source.groups("train", ids)
    assert {0, 1} == set(groups.tolist())
    for which, own in enumerate(source.sources.values()):
        mine = [i for i in ids if groups[i] == which]
        alone = own.batch("train", mine)
        laws.assert_same(batch[torch.tensor(mine)], alone, "mixed or alone")


@pytest.mark.parametrize(
    ("weights", "expected"),
    [({}, 0.5), ({"wide": 3.0}, 0.25), ({"narrow": 1e308, "wide": 1e308}, 0.5)],
)
def test_tasks_come_in_proportion_to_the_weights(weights, expected):
    found = (make(weights=weights).groups("train", range(4000)) == 0).double().mean()
    assert abs(float(found) - expected) < 0.04  # 5 standard errors


def test_shares_are_weights_over_their_sum_however_large():
    assert shares("ab", {"a": 1e308, "b": 1e308}) == {"a": 0.5, "b": 0.5}
    assert shares("ab", {"a": 0.1, "b": 0.2}) == {"a": 0.1 / (0.1 + 0.2), "b": 0.2 / (0.1 + 0.2)}
    assert shares("abc", {"b": 2.0}) == {"a": 0.25, "b": 0.5, "c": 0.25}
    assert shares("ab", {"a": 1e-300})["a"] == 1e-300


def test_groups_are_the_sources_and_classes_are_told_with_theirs():
    source = make(sources={"a": arrays(6, 1, "same"), "b": arrays(6, 1, "same")})
    assert source.group_names == ("a", "b")
    for task in range(10):
        told = source.describe_task("train", task)
        assert told["group"] == source.group_names[int(source.groups("train", [task])[0])]
        assert all(name.startswith(f"{told['group']}: same") for name in told["classes"])
        assert all(row.startswith(f"{told['group']}: ") for rows in told["query"] for row in rows)


@pytest.mark.parametrize(
    "change",
    [{"weights": {"wide": 2.0}}, {"width": 3}, {"centre": True}, {"normalize": "none"},
     {"projection": "discriminant"}, {"seed": 1}, {"shots": 1}],
    ids=str,
)  # fmt: skip
def test_the_fingerprint_tells_what_changes_tasks(change):
    assert make(**change).fingerprint != make().fingerprint
    assert make().fingerprint == make().fingerprint


def test_without_a_projection_kernels_see_the_features_of_the_sources():
    def with_features(columns: int, seed: int, width: int) -> dict:
        given = arrays(columns, seed)
        return {**given, "features": given["x"][:, :width] + 100}

    sources = {"a": with_features(4, 1, 2), "b": with_features(4, 2, 2)}
    source = make(projection="none", sources=sources)
    assert source.has_features
    seen = source.batch("train", range(20), "features")
    assert seen.support_x.shape[2:] == (2,)
    expected = source.batch("train", range(20)).support_x[..., :2] + 100
    torch.testing.assert_close(seen.support_x, expected)
    with pytest.raises(DataError, match=r"features of unlike widths \(a: \[2\], b: \[3\]\)"):
        make(projection="none", sources={**sources, "b": with_features(4, 2, 3)})


# -- projections ---------------------------------------------------------------------


def rows(source: TaskSource) -> torch.Tensor:
    tasks = source.batch("train", range(512))
    return torch.cat([tasks.support_x, tasks.query_x], 1).flatten(0, 1)


def test_principal_components_are_those_of_a_singular_value_decomposition():
    source = source_of()
    found = fit(source, options(normalize="none"), "b")
    x = rows(source)
    _, _, vectors = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    same = (vectors[:4] @ found.basis).abs()
    torch.testing.assert_close(same, torch.eye(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(found(x), x @ found.basis)


def test_scatter_is_about_the_mean_of_each_class_of_each_task():
    source = source_of()
    tasks = source.batch("train", range(512))
    x = torch.cat([tasks.support_x, tasks.query_x], 1)
    y = torch.cat([tasks.support_y, tasks.query_y], 1)
    centred = torch.cat([x[t][y[t] == c] - x[t][y[t] == c].mean(0)
                         for t in range(512) for c in range(3)])  # fmt: skip
    found = moments(source, "b")
    torch.testing.assert_close(found.within, centred.T @ centred / len(centred))
    torch.testing.assert_close(found.total, torch.cov(rows(source).T, correction=0))


def test_the_discriminant_finds_what_tells_classes_apart():
    """Classes differ along one column of small variance; the others are loud noise."""
    random = np.random.default_rng(0)
    quiet = np.repeat(np.arange(CLASSES), ROWS)[:, None] / 10
    loud = 10 * random.normal(size=(CLASSES * ROWS, 5))
    x = np.concatenate([loud, quiet + 0.01 * random.normal(size=(CLASSES * ROWS, 1))], 1)
    source = metaforge.create(
        "dataset", "arrays", x=x, y=np.repeat(np.arange(CLASSES), ROWS), ways=3, shots=2, queries=3
    )
    only = options(width=1, normalize="none")
    along = {how: fit(source, only.model_copy(update={"projection": how}), "a").basis[:, 0].abs()
             for how in ("pca", "discriminant")}  # fmt: skip
    assert along["discriminant"].argmax() == 5
    assert along["pca"].argmax() != 5


def test_projecting_the_class_data_once_is_projecting_every_task():
    source = source_of(shots=(1, 3))
    projection = fit(source, options(), "b")
    once, always = source.mapped(projection), ProjectedTasks(source, projection)
    assert once.shape == always.shape
    for name in ("support_x", "query_x", "support_mask", "query_y"):
        first, second = (getattr(s.batch("test", range(30)), name) for s in (once, always))
        torch.testing.assert_close(first, second, atol=1e-12, rtol=0)


def test_centring_hides_the_mean_of_a_source_and_nothing_else_does():
    for centre in (True, False):
        source = make(centre=centre, normalize="none", dtype="float64")
        means = torch.stack([rows(one).mean(0) for one in source.sources.values()])
        assert bool((means.norm(dim=1) < 0.1).all()) == centre


def test_samples_have_unit_length_or_their_own():
    assert torch.allclose(rows(make()).norm(dim=1), torch.ones(()), atol=1e-5)
    assert not torch.allclose(rows(make(normalize="none")).norm(dim=1), torch.ones(()), atol=0.1)


# -- faults --------------------------------------------------------------------------


def test_sources_of_unlike_widths():
    with pytest.raises(DataError, match="'narrow' has samples of 6 numbers, fewer than width 7"):
        make(width=7)
    with pytest.raises(DataError, match=r"differ in input shape: .* set data.projection: pca"):
        make(projection="none")


def test_a_source_that_does_not_vary_is_named():
    flat = arrays(6, 1)
    flat["x"][:, 2:] = 1.0
    with pytest.raises(DataError, match=r"'a' vary in 2 directions, fewer than width 4; set .* 2"):
        make(sources={"a": flat, "b": arrays(6, 2)})


def test_a_source_that_does_not_vary_within_its_classes_has_no_discriminant():
    alike = arrays(6, 1)
    alike["x"] = alike["x"].reshape(CLASSES, ROWS, 6)[:, :1].repeat(ROWS, 1).reshape(-1, 6)
    sources = {"a": alike, "b": arrays(6, 2)}
    with pytest.raises(DataError, match=r"source 'a' do not vary within their classes, .*: pca"):
        make(sources=sources, projection="discriminant")
    make(sources=sources)


@pytest.mark.parametrize("projection", ["pca", "discriminant"])
def test_a_source_all_of_whose_rows_are_the_same(recipe, tmp_path, projection):
    flat = arrays(6, 1)
    np.savez(tmp_path / "one.npz", X=flat["x"] * 0 + 0.1, y=flat["y"])
    found = problems(recipe, f"data.projection={projection}")
    assert "data.sources.one: arrays: all rows of x" in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": {"a": {"use": "arrays"}}}, "at least two, found 1"),
        ({"weights": {"c": 1.0}}, "no source is named c"),
        ({"weights": {"narrow": 0.0}}, "greater than 0"),
        ({"weights": {"narrow": float("nan")}}, "finite"),
        ({"projection": "none", "width": 4}, "does not read width"),
        ({"sources": {"a": {**arrays(6, 1), "shots": 5}, "b": arrays(6, 2)}}, "is 2 for all"),
    ],
)
def test_options_that_contradict(change, message):
    with pytest.raises(RecipeError, match=message):
        make(**change)


# -- recipes -------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, columns, seed in (("one", 6, 1), ("two", 9, 2)):
        described = arrays(columns, seed)
        np.savez(tmp_path / f"{name}.npz", X=described["x"], y=described["y"])
    sources = {name: {"use": "arrays", "path": f"{name}.npz"} for name in ("one", "two")}
    return {
        "name": "mixed",
        "threads": 1,
        "data": {"use": "mixture", "ways": 3, "shots": 2, "queries": 3, "width": 4,
                 "sources": sources},
        "inner": {"use": "ls", "hidden": 8},
        "bank": {"size": 60},
        "meta_train": {"steps": 10, "batch": 4, "validate_every": 5, "validation_targets": 5},
        "kernel": {"use": "gaussian", "bandwidth": "median"},
        "condition": {"steps": 4, "batch": 4, "top_m": 10},
        "evaluate": {"targets": 6, "controls": ["oracle", "random_m"], "workers": 1},
    }  # fmt: skip


def problems(recipe, *changes) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, changes)
    return str(caught.value)


def test_a_run_on_a_mixture_and_what_it_records(recipe, tmp_path):
    found = metaforge.run(recipe, quiet=True)
    assert found["controls"]["oracle"]["n"] == 6
    repeated = metaforge.run(f"{found['run_dir']}/resolved.yaml", quiet=True)
    assert repeated["conditional"] == found["conditional"]


@pytest.mark.parametrize("change", ["data.shots=[1,3]", "data.queries=[3,5]"])
def test_a_run_on_tasks_of_unequal_sizes(recipe, change):
    found = metaforge.run(recipe, change, "evaluate.targets=2", quiet=True)
    assert found["controls"]["oracle"]["n"] == 2


def test_sizes_are_handed_down_to_the_sources_and_told_once(recipe):
    resolved = load_recipe(recipe, ["data.shots=1"])
    sources = resolved.recipe.data.options["sources"]
    assert [one["shots"] for one in sources.values()] == [1, 1]
    assert resolved.changes["data.ways"] == 3
    assert not [key for key in resolved.changes if key.endswith(("one.ways", "one.shots"))]


def test_an_override_reaches_a_source(recipe):
    resolved = load_recipe(recipe, ["data.sources.one.normalize=l2"])
    assert resolved.recipe.data.options["sources"]["one"]["normalize"] == "l2"
    found = problems(recipe, "data.sources.one.shots=5", "data.sources.two=array")
    assert "data.sources.one.shots: is 2 for every one of data.sources" in found
    assert "data.sources.two.use: unknown dataset 'array'; did you mean 'arrays'?" in found


def test_validate_names_what_does_not_go_together(recipe):
    found = problems(recipe, "data.width=8")
    assert "'one' has samples of 6 numbers, fewer than width 8; set width to 6" in found
    found = problems(recipe, "data.projection=none", "data.width=64")
    assert "unlike widths (one: 6, two: 9): set projection: pca" in found
    found = problems(recipe, "data.sources.three.use=sinusoids")
    assert "unlike kinds (one: classification, two: classification, three: regression)" in found
    assert "set width to 1 or less" not in found
    assert "too few" in problems(recipe, "data.ways=30") or "30" in problems(recipe, "data.ways=30")


def test_sources_of_regression_are_not_projected(recipe):
    recipe["data"] = {
        "use": "mixture",
        "sources": {"lines": {"use": "sinusoids", "families": ["line"]}, "all": "sinusoids"},
    }
    recipe["inner"] = {"use": "maml", "model": {"use": "mlp", "hidden": [4]}, "steps": 1}
    recipe["kernel"]["embedding"] = "joint"
    found = problems(recipe, "data.width=1")
    assert "regression tasks (lines, all) mean something as they are: set projection: none" in found
    assert "fewer than width" not in problems(recipe)
    load_recipe(recipe, ["data.projection=none"])
    within = {**recipe["data"], "projection": "none"}
    recipe["data"]["sources"] = {"both": within, "all": "sinusoids"}
    assert "regression tasks (both, all) mean something as they are" in problems(recipe)
    load_recipe(recipe, ["data.projection=none"])


def test_a_class_trained_on_in_one_source_and_held_out_in_another_is_named(recipe):
    found = problems(recipe, "data.sources.two.path=one.npz", "data.sources.two.split_seed=5")
    assert "have the names of training classes of source" in found
    load_recipe(recipe, ["data.sources.two.path=one.npz"])  # split alike


def test_a_class_of_a_mixture_within_another_is_the_class(recipe):
    one = recipe["data"]["sources"]["one"]
    nested = {"use": "mixture", "width": 4, "sources": {"x": one, "y": {**one, "path": "two.npz"}}}
    recipe["data"]["sources"] = {"within": nested, "beside": {**one, "split_seed": 5}}
    found = problems(recipe)
    assert "source 'beside' holds out for test have the names of training classes" in found
    recipe["data"]["sources"]["beside"] = one
    load_recipe(recipe)


def test_labels_in_numbers_are_names_within_their_file(recipe, tmp_path):
    with np.load(tmp_path / "one.npz") as one:
        x, y = one["X"], np.unique(one["y"], return_inverse=True)[1]
    for name in ("numbers", "others"):
        np.savez(tmp_path / f"{name}.npz", X=x, y=y, z=y)
    same = "data.sources.one.path=numbers.npz", "data.sources.two.path=numbers.npz"
    found = problems(recipe, *same, "data.sources.two.split_seed=5")
    assert f"have the names of training classes of source 'one' (y of {tmp_path}" in found
    load_recipe(recipe, same)  # split alike
    other = same[0], "data.sources.two.path=others.npz", "data.sources.two.split_seed=5"
    load_recipe(recipe, other)
    load_recipe(recipe, [*same, "data.sources.two.split_seed=5", "data.sources.two.y=z"])


def test_a_source_that_the_bank_would_hardly_hold_is_named(recipe):
    recipe["data"]["weights"] = {"one": 0.02}
    with pytest.raises(RecipeError, match=r"weights\.one: the bank's 60 tasks would hold 1\.2 of"):
        load_recipe(recipe)
    load_recipe({**recipe, "bank": {"size": 200}})


def test_a_scarce_source_of_a_mixture_within_another_is_named(recipe):
    sources = recipe["data"]["sources"]
    inner = {"use": "mixture", "width": 4, "sources": sources, "weights": {"one": 1.0, "two": 3.0}}
    recipe["data"]["sources"] = {"both": inner, "other": sources["two"]}
    load_recipe(recipe)  # 60 / 2 / 4 tasks of the scarcer one
    found = problems(recipe, "data.sources.both.weights.one=0.1")
    assert "data.sources.both.weights.one: the bank's 60 tasks would hold 0.97 of" in found
    found = problems(recipe, "data.weights={both: 0.01}")
    assert "data.weights.both: the bank's 60 tasks would hold 0.59 of" in found
    assert "data.sources.both.weights" not in found


@pytest.mark.parametrize("projection", ["none", "pca"])
def test_mixtures_within_mixtures_draw_by_streams_of_their_own(projection):
    given = {"projection": projection} if projection == "none" else {"width": 4}
    within = {"use": "mixture", **given, "sources": {"x": arrays(6, 2), "y": arrays(6, 3)}}
    whole = make(projection=projection, sources={"one": arrays(6, 1), "two": within})
    (mine,) = np.nonzero(whole.groups("train", np.arange(4000)).numpy())
    assert len(mine) == pytest.approx(2000, abs=150)
    shares = whole.sources["two"].groups("train", mine).double().mean()
    assert float(shares) == pytest.approx(0.5, abs=0.05)


def test_every_faulty_weight_is_named_at_once(recipe):
    found = problems(recipe, "data.weights={one: nan, two: -1, q: 1, r: 0}")
    assert "data.weights.q: no source is named q (there are: one, two)" in found
    for name in ("one", "two", "r"):
        assert f"data.weights.{name}: " in found
    found = problems(recipe, "data.weights={q: 1}", "data.sources=3")
    assert "no source is named" not in found
