"""Every problem of a recipe at once, each with its line, its path and the nearest name."""

from __future__ import annotations

import pytest

from metaforge import discovery
from metaforge.discovery import Settings
from metaforge.errors import RecipeError
from metaforge.recipe import load

from .conftest import RECIPE


def problems_of(source, overrides=(), **options) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load(source, overrides, **options)
    root = str(getattr(source, "parent", ""))
    return [line.replace(root + "/", "") for line in str(caught.value).splitlines()]


def test_all_problems_at_once_in_order_of_lines(fakes, write_recipe):
    path = write_recipe(
        """\
name: my recipe
sede: 1
data:
  use: glyphs
  ways: five
  shuffle: no
inner:
  use: maml
  stpes: 5
  model:
    use: mpl
condition:
  steps: 1e3
  sampling: propotional
  optimizer: {lr: 0, clip_nrom: 1}
kernel:
  use: gausian
weighting: {use: tasml, lambda: none}
trackers:
  - use: csv
    biass: 1
evaluate:
  - test
"""
    )
    assert problems_of(path) == [
        "fake.yaml:1: name: should match pattern '^[\\w.-]+$'; found \"my recipe\"",
        "fake.yaml:2: sede: unknown key; did you mean 'seed'?",
        'fake.yaml:5: data.ways: should be a valid integer; found "five"',
        'fake.yaml:6: data.shuffle: should be a valid boolean; found "no"',
        "fake.yaml:9: inner.stpes: unknown key; did you mean 'steps'?",
        "fake.yaml:11: inner.model.use: unknown model 'mpl'; did you mean 'mlp'?",
        "fake.yaml:13: condition.steps: should be a valid integer; found 1000.0: write 1000",
        "fake.yaml:14: condition.sampling: should be 'uniform' or 'proportional'; found "
        "\"propotional\"; did you mean 'proportional'?",
        "fake.yaml:15: condition.optimizer.lr: should be greater than 0; found 0",
        "fake.yaml:15: condition.optimizer.clip_nrom: unknown key; did you mean 'clip_norm'?",
        "fake.yaml:17: kernel.use: unknown task_kernel 'gausian'; did you mean 'gaussian'?",
        "fake.yaml:18: weighting.lambda: should be a valid number, or 'n^-1/2'; found \"none\"",
        "fake.yaml:21: trackers[0].biass: unknown key; did you mean 'bias'?",
        'fake.yaml:22: evaluate: should be keys and values; found ["test"]',
    ]


OVERRIDES = {
    "inner.stpes=5": "inner.stpes: unknown key; did you mean 'steps'?",
    "condition.stpes=5": "condition.stpes: unknown key; did you mean 'steps'?",
    "condition.top_m=many": 'condition.top_m: should be a valid integer; found "many"',
    "kernel.use=gausian": "kernel.use: unknown task_kernel 'gausian'; did you mean 'gaussian'?",
    "inner.model.hiden=[3]": "inner.model.hiden: unknown key (keys here: bias)",
    "top_m=3": "top_m: unknown key; did you mean 'condition.top_m'?",
    "lr=3": "lr: unknown key; did you mean 'meta_train.optimizer.lr' or 'condition.optimizer.lr'?",
    "zzz.y=3": "zzz: unknown key (keys here: ",
    "seed.x=3": "seed.x: seed holds 3, not keys",
    "device=gpu": "device: 'gpu' is no device: say auto, cpu, cuda or cuda:1",
    "condition.optimizer.lr=.inf": "condition.optimizer.lr: should be a finite number",
    "bank=null": "bank: should be keys and values; found null",
    "data=null": "data: should be keys and values; found null",
    "kernel=3": "kernel: should be keys and values; found 3",
    "kernel.use=3": "kernel.use: should be a valid string; found 3",
    "nothing": "expected key=value",
    "=3": "expected key=value",
    "a..b=3": "expected key=value",
    "seed=[1": "not readable as YAML",
    "seed={a: 1, a: 2}": "a: given twice",
}


@pytest.mark.parametrize(("override", "message"), OVERRIDES.items(), ids=OVERRIDES)
def test_problems_of_overrides_name_the_override(fakes, write_recipe, override, message):
    (line,) = problems_of(write_recipe(RECIPE + "seed: 3\n"), [override])
    assert line.startswith(f"override {override!r}: ")
    assert message in line


def test_unreadable_overrides_are_all_named(fakes, write_recipe):
    assert len(problems_of(write_recipe(), ["one", "two=[", "a.b.c"])) == 3


def test_unreachable_overrides_are_all_named(fakes, write_recipe):
    lines = problems_of(write_recipe(), ["name.a=1", "data.ways.b=2"])
    assert lines == [
        "override 'name.a=1': name.a: name holds \"fake\", not keys",
        "override 'data.ways.b=2': data.ways.b: data.ways holds 3, not keys",
    ]


def test_required_keys(fakes):
    assert problems_of({}) == [
        "data: required, and not given",
        "inner: required, and not given",
    ]
    assert problems_of({"data": {"ways": 3}, "inner": {}}) == [
        "data.use: required, and not given",
        "inner.use: required, and not given",
    ]


def test_selecting_on_test_is_impossible_and_says_so(fakes, write_recipe):
    path = write_recipe(RECIPE + "select: {split: test, grid: {condition.top_m: [3]}}\n")
    (line,) = problems_of(path)
    assert "select.split: selection always uses validation targets, never test" in line


def test_unknown_component_of_a_failed_plugin_exits_4_and_says_why(fakes, write_recipe):
    fakes.plugin("late", "import no_such_module")
    path = write_recipe(RECIPE.replace("gaussian, gamma: 2.0", "theirs"))
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.exit_code == 4
    assert str(caught.value).splitlines() == [
        f"{path}:11: kernel.use: unknown task_kernel 'theirs' (there are: gaussian, laplace)",
        "plugin 'late' (dist-late 1.0) may have it, but has failed: "
        "ModuleNotFoundError: No module named 'no_such_module'",
    ]


def test_a_failed_plugin_that_is_not_needed_does_not_matter(fakes, write_recipe):
    fakes.plugin("late", "import no_such_module")
    assert load(write_recipe()).recipe.name == "fake"


def test_blocked_plugin_is_named_when_its_component_is_missed(fakes, write_recipe):
    discovery.configure(Settings(blocked=("fake",)))
    lines = problems_of(write_recipe())
    assert lines[-1] == ("plugin 'fake' (fake-dist 2.1) may have it, but is blocked by -p no:fake")
    assert sum("may have it" in line for line in lines) == 1


def test_unknown_component_without_suspects_exits_2(fakes, write_recipe):
    path = write_recipe(RECIPE.replace("gaussian, gamma: 2.0", "gausian"))
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.exit_code == 2


def test_a_source_tree_that_is_not_installed_says_so(fakes, write_recipe):
    (fakes.path / "metaforge-1.0.dist-info" / "entry_points.txt").unlink()
    path = write_recipe(RECIPE.replace("gaussian, gamma: 2.0", "gausian"))
    assert problems_of(path)[1] == (
        "the built-in plugins are not installed: run 'pip install -e .'"
    )


def test_clash_names_both_distributions(fakes, write_recipe):
    fakes.module("copycat", (fakes.path / "fakeplug.py").read_text())
    fakes.distribution("copy-dist", {"copy": "copycat"})
    lines = problems_of(write_recipe())
    assert len(lines) == 4  # data, inner, kernel and weighting
    assert all("copy-dist 1.0" in line and "fake-dist 2.1" in line for line in lines)
    text = RECIPE.replace("use: ", "use: fake-dist:")
    text = text.replace("steps: 2\n", "steps: 2\n  model: fake-dist:linear\n")
    assert load(write_recipe(text)).recipe.kernel.use == "fake-dist:gaussian"


SOURCES = {
    "absent.yaml": "absent.yaml: no such file, and no shipped recipe of this name",
    "folder": "folder is a folder, not a recipe",
    "latin.yaml": "latin.yaml is not UTF-8 text",
    "big.yaml": "big.yaml has more than 1000000 bytes",
}


@pytest.mark.parametrize(("name", "message"), SOURCES.items(), ids=SOURCES)
def test_what_is_no_recipe(fakes, tmp_path, name, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    (tmp_path / "big.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(RecipeError, match=message):
        load(tmp_path / name)


def test_a_run_folder_names_the_recipe_in_it(fakes, tmp_path):
    (tmp_path / "resolved.yaml").write_text("")
    with pytest.raises(RecipeError, match=r"say .*resolved\.yaml"):
        load(tmp_path)


def test_data_is_checked_even_where_the_recipe_has_problems(fakes, write_recipe):
    path = write_recipe(RECIPE.replace("ways: 3", "broken: list") + "sede: 3\n")
    assert problems_of(path) == [
        "fake.yaml:5: data: class a: has 3, needs 6",
        "fake.yaml:5: data: class b: has 2, needs 6",
        "fake.yaml:17: sede: unknown key; did you mean 'seed'?",
    ]


@pytest.mark.parametrize("broken", ["list", "raise"])
def test_data_problems_exit_3(fakes, write_recipe, broken):
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), [f"data.broken={broken}"])
    assert caught.value.exit_code == 3
    load(write_recipe(), [f"data.broken={broken}"], check=False)


def test_a_check_that_crashes_names_the_component_and_exits_4(fakes, write_recipe):
    (fakes.path / "fakeplug_checks.py").write_text("def check(options, context): return 1 / 0")
    with pytest.raises(
        RecipeError, match="check of dataset 'glyphs' failed: ZeroDivision"
    ) as caught:
        load(write_recipe())
    assert caught.value.exit_code == 4


def test_problems_of_plugins_are_located(fakes, write_recipe):
    fakes.plugin(
        "rule",
        """
        from metaforge.errors import Problem
        from metaforge.hookspecs import hookimpl

        @hookimpl
        def metaforge_check_recipe(recipe):
            even = recipe.kernel.options["gamma"] == 2
            return [Problem("kernel.gamma", "is even")] * even
        """,
    )
    assert problems_of(write_recipe()) == ["fake.yaml:11: kernel.gamma: is even"]
    load(write_recipe(), ["kernel.gamma=3"])
