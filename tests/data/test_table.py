"""``table``: rows of a csv or Parquet file as tasks, and what is wrong with one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.recipe import load as load_recipe
from metaforge.testing import datasets as laws
from metaforge.testing.conformance import laws_of
from metaforge.testing.law import check_all
from metaforge_table import layout
from metaforge_table.layout import check, facts
from metaforge_table.options import TableOptions
from metaforge_table.source import load

CLASSES, ROWS = 20, 6
SMALL = {"ways": 3, "shots": 1, "queries": 2}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(CLASSES * ROWS, 3)).round(3)
Y = [f"class {c:02}" for c in np.repeat(np.arange(CLASSES), ROWS)]


def write(tmp_path: Path, name: str = "t.csv", **columns) -> Path:
    """Features a, b, c, labels, and further columns; a column that is None is left out."""
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y} | columns
    table = {key: values for key, values in table.items() if values is not None}
    path = tmp_path / name
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(table), path)
        return path
    lines = [",".join(table)]
    lines += [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    path.write_text("\n".join(lines))
    return path


def make(path: Path, context: Context | None = None, **more):
    return load(TableOptions(path=path, **{**SMALL, **more}), context or Context())


def problems(path: Path, **more) -> str:
    return "\n".join(check(TableOptions(path=path, **{**SMALL, **more}), Context()))


def test_own_table_in_one_line(tmp_path):
    made = metaforge.create("dataset", "table", path=write(tmp_path), **SMALL)
    assert made.summary() == {
        "name": "t.csv",
        "train": "13 classes",
        "val": "3 classes",
        "test": "4 classes",
    }
    told = made.describe_task("test", 2)
    assert told["classes"] == [Y[row] for (row,) in told["support"]]
    rows = torch.from_numpy(X[np.ravel(told["support"])]).float()
    assert torch.equal(made.batch("test", [2]).support_x[0], rows)


def test_the_same_tasks_as_arrays(tmp_path):
    arrays = metaforge.create("dataset", "arrays", x=X, y=Y, **SMALL)
    assert make(write(tmp_path)).fingerprint == arrays.fingerprint


def test_every_law(tmp_path):
    number = np.arange(len(Y))
    path = write(
        tmp_path,
        kind=number // ROWS % 2,
        film=number % 3,
        part=np.array(["train", "val", "test", "train"])[number // ROWS % 4],
        file=[f"row {n}" for n in number],
    )
    options = {"group": "kind", "within": 0.5, "sample_group": "film", "split": "part"}
    laws.check_task_source(
        lambda seed: make(
            path, Context(seed=seed), **options, names="file", normalize="standardize", ways=2
        ),
        tasks=200,
        sample_groups={f"row {n}": int(n) % 3 for n in number},
    )


def test_labels_by_any_of_their_names_and_it_is_said(tmp_path):
    lines: list[str] = []
    path = write(tmp_path, label=None, y=Y)
    make(path, Context(report=lines.append))
    assert lines == ["table: labels are those of column y, features 3 more"]
    lines.clear()
    made = make(
        write(tmp_path, "u.csv", kind=Y, label=None), Context(report=lines.append), label="kind"
    )
    assert made.fingerprint == make(path).fingerprint
    assert not lines


def test_columns_by_name_and_pattern(tmp_path):
    path = write(tmp_path, note=["x"] * len(Y), d1=X[:, 0], d2=X[:, 1])
    made = make(path, columns=["a", "d*"])
    assert made.shape.input_shape == (3,)
    found = problems(path, columns=["a", "e*", "bb"])
    assert "no column e* (option columns)" in found
    assert "no column bb (option columns); did you mean 'b'?" in found


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet_with_a_column_of_lists(tmp_path):
    columns = {"a": None, "b": None, "c": None, "embedding": X.tolist()}
    made = make(write(tmp_path, "t.parquet", **columns))
    assert made.fingerprint == make(write(tmp_path)).fingerprint


def test_columns_that_are_not_there_are_told_at_once(tmp_path):
    path = write(tmp_path)
    found = problems(path, label="labels", group="kind", within=1)
    assert "no column labels (option label); did you mean 'label'?" in found
    assert "no column kind (option group)" in found
    assert found.endswith("it has a, b, c, label")
    assert "none being called label, y, class" in problems(write(tmp_path, "u.csv", label=None))


def test_features_that_are_no_numbers_are_told_at_once(tmp_path):
    path = write(tmp_path, colour=["red"] * len(Y), note=["x"] * len(Y))
    assert "2 columns of features hold no numbers: colour, note; leave them out" in problems(path)
    with pytest.raises(DataError, match="colour, note"):
        make(path)
    assert not problems(path, columns=["a", "b", "c"])


def test_faulty_cells_are_told_at_once(tmp_path):
    path = write(tmp_path)
    lines = path.read_text().split("\n")
    lines[3] = lines[3].replace(lines[3].split(",")[1], "NaN", 1)
    lines[7] = "," + lines[7].split(",", 1)[1]
    lines[9] = lines[9].replace("class 01", "")
    path.write_text("\n".join(lines))
    found = problems(path)
    assert "line 4: column b holds 'NaN'" in found
    assert "line 8: column a is empty" in found
    assert "line 10: column label is empty" in found
    with pytest.raises(DataError) as caught:
        make(path)
    assert f"table: {caught.value}".count("line ") == 3


def test_real_labels_are_no_classes(tmp_path):
    path = write(tmp_path, label=X[:, 0])
    assert "column label holds" in problems(path)
    assert "looks like a regression target" in problems(path)


def test_a_class_of_two_groups_and_of_too_few_rows(tmp_path):
    number = np.arange(len(Y))
    path = write(tmp_path, kind=number % 2)
    found = problems(path, group="kind", within=1)
    assert "group differs between rows of one class, of 20 classes, first 'class 00'" in found
    found = problems(write(tmp_path), shots=5)
    assert "t.csv: split 'train': class 'class 0" in found
    assert "needs 7" in found


def test_a_large_file_is_left_to_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "_MOST_TEXT", 10)
    lines: list[str] = []
    path = write(tmp_path, note=["x"] * len(Y))
    assert not check(TableOptions(path=path, **SMALL), Context(report=lines.append))
    assert "are not read here" in lines[0]
    assert facts(TableOptions(path=path, **SMALL), Context()).width is None
    assert "no column z" in problems(path, label="z")


def test_facts(tmp_path):
    found = facts(TableOptions(path=write(tmp_path), **SMALL), Context())
    assert found.width == 3
    assert found.shape == (3,)
    assert len(found.classes["train"]) == 13


def test_a_recipe_tells_its_line(tmp_path):
    write(tmp_path, note=["x"] * len(Y))
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("name: mine\ndata: {use: table, path: t.csv, queries: 2}\ninner: {use: ls}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe)
    assert caught.value.exit_code == 3
    assert "mine.yaml:2: data: table: " in str(caught.value)
    with pytest.raises(RecipeError, match=r"data: table: .*none.csv: no such file"):
        load_recipe(recipe, ["data.path=none.csv"])
    with pytest.raises(RecipeError, match=r"data: table: .*expected a table, whose name ends in"):
        load_recipe(recipe, ["data.path=."])
    assert load_recipe(recipe, ["data.columns=[a, b, c]", "data.ways=3"]).recipe.name == "mine"


@pytest.mark.slow
def test_it_conforms(tmp_path):
    check_all(laws_of("dataset", "table", {"path": str(write(tmp_path)), **SMALL}))


def test_a_column_of_ids_names_the_rows_and_is_no_feature(tmp_path):
    """Numbers that follow the classes would tell the label."""
    path = tmp_path / "ids.csv"
    rows = [f"{n},c{n // 25:02},{n % 7}.5,{n % 5}.25" for n in range(25 * 30)]
    path.write_text("\n".join(["id,label,a,b", *rows]))
    said: list[str] = []
    options = {"path": path, "ways": 5, "shots": 1, "queries": 5}
    source = metaforge.create("dataset", "table", context=Context(report=said.append), **options)
    assert source.shape.input_shape == (2,)
    assert any("rows are named by column id, which is no feature" in line for line in said)
    classes, support = (source.describe_task("test", 0)[key] for key in ("classes", "support"))
    for name, ids in zip(classes, support, strict=True):
        assert all(f"c{int(row) // 25:02}" == name for row in ids)
    asked = metaforge.create("dataset", "table", **options, columns=["id", "a"])
    assert asked.shape.input_shape == (2,)
    assert asked.preprocess().columns == ("id", "a")
