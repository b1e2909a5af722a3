"""The YAML of recipes: what values mean, what is refused, where keys were written."""

from __future__ import annotations

import math
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaforge.errors import RecipeError
from metaforge.recipe.dialect import dump
from metaforge.recipe.document import plain, read, read_value

VALUES = {
    "1e-4": 1e-4,
    "1E5": 1e5,
    "-1.5e+3": -1500.0,
    "1.": 1.0,
    ".5": 0.5,
    "3": 3,
    "+3": 3,
    "-0": 0,
    "10_000": 10000,
    "0x1F": 31,
    "0o17": 15,
    ".inf": math.inf,
    "-.inf": -math.inf,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "": None,
    "no": "no",
    "yes": "yes",
    "On": "On",
    "off": "off",
    "y": "y",
    "010": "010",
    "12:30": "12:30",
    "1:30:00": "1:30:00",
    "2024-05-01": "2024-05-01",
    "=": "=",
    "<<": "<<",
    "1e": "1e",
    "e5": "e5",
    ".": ".",
    "1_": "1_",
    "n^-1/2": "n^-1/2",
    "'3'": "3",
    '"1e-4"': "1e-4",
    "[1, 2.5, x, null]": [1, 2.5, "x", None],
    "{a: no, 1: 2}": {"a": "no", "1": 2},
    "a=b": "a=b",
    "$METAFORGE_DATA/x": "$METAFORGE_DATA/x",
}


@pytest.mark.parametrize(("text", "value"), VALUES.items(), ids=VALUES)
def test_values_mean_what_they_look_like(text, value):
    found = read_value(text, "here")
    assert found == value
    assert type(found) is type(value)


def test_nan():
    assert math.isnan(read_value(".nan", "here"))


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
    | st.sampled_from([*VALUES, "1e-4", "0x1", "007", "-", "#", "a: b", "&a", "*a", "!x"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc.1"), inner), max_leaves=20
)


@given(values)
def test_dumped_data_reads_back_the_same(value):
    found = read_value(dump({"key": value}), "here")
    assert found == {"key": value}
    assert repr(found) == repr({"key": value})  # 1, 1.0 and True are equal, and differ


REFUSED = {
    "duplicate": ("a: 1\nb: 2\na: 3", "r.yaml:3: a: given twice, the first time in line 1"),
    "duplicate below": ("a:\n  b: 1\n  b: 2", "r.yaml:3: a.b: given twice"),
    "syntax": ("a: [1, 2\nb: 3", "r.yaml:2: not readable as YAML"),
    "tab": ("a:\n\tb: 1", "r.yaml:2: not readable as YAML"),
    "object": ("a: !!python/object/apply:os.system [ls]", "the tag"),
    "tag": ("a: !mine 3", "r.yaml:1: a: the tag !mine has no place in a recipe"),
    "binary": ("a: !!binary aGk=", "the tag !!binary has no place"),
    "mapping tag": ("a: !!set {x, y}", "the tag !!set has no place"),
    "text as a mapping": ("a: !!map x", "the tag !!map has no place"),
    "list as text": ("a: !!str [x]", "the tag !!str has no place"),
    "bad number": ("a: !!int x", "r.yaml:1: a: "),
    "odd key": ("? [a, b]\n: 1", "r.yaml:1: a key must be a word"),
    "two documents": ("a: 1\n---\nb: 2", "r.yaml:2: not readable as YAML"),
    "unknown alias": ("a: *b", "r.yaml:1: not readable as YAML"),
    "not keys": ("- a\n- b", "expected keys and values, found a list"),
    "text": ("just text", "expected keys and values, found text"),
    "empty": ("# nothing\n", "expected keys and values, it is empty"),
    "control": ("a: \x01", "not readable as YAML"),
    "surrogate": ('a: "\\ud800"', "not valid Unicode"),
    "deep": ("a: " + "[" * 5000 + "]" * 5000, "nested deeper than 32 levels"),
    "itself": ("a: &a [*a]", "not readable as YAML: "),
    "bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "\n".join(
            f"{new}: &{new} [{','.join(['*' + old] * 10)}]"
            for old, new in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "more than 20000 values",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_with_its_place(text, message):
    with pytest.raises(RecipeError) as caught:
        read(text, "r.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("r.yaml")


def test_all_duplicates_at_once():
    with pytest.raises(RecipeError) as caught:
        read("a: 1\na: 2\nb: {c: 1, c: 2}", "r.yaml")
    assert [problem.path for problem in caught.value.problems] == ["a", "b.c"]


def test_aliases_within_reason_are_written_out():
    assert read("a: &x {b: 1}\nc: *x", "r.yaml").data == {"a": {"b": 1}, "c": {"b": 1}}


def test_every_key_knows_its_line():
    document = read("a: 1\n\nb:\n  c: 2\n  d:\n    - {e: 3}\n    - e: 4\n", "r.yaml")
    lines = {("a",): 1, ("b",): 3, ("b", "c"): 4, ("b", "d", 0, "e"): 6, ("b", "d", 1, "e"): 7}
    for path, line in lines.items():
        assert document.where(path) == f"r.yaml:{line}"
    assert document.where(("b", "unwritten", "x")) == "r.yaml:3"
    assert document.where(("z",)) == "r.yaml:1"


def test_what_is_not_written_is_where_its_component_was_chosen():
    document = read("kernel:\n  gamma: 1\n  use: gaussian\n", "r.yaml")
    assert document.where(("kernel", "sigma")) == "r.yaml:3"


def test_python_values_as_a_recipe_would_write_them():
    value = {"a": (1, 2.5), "b": PurePosixPath("/x"), 3: np.int64(4), "f": np.float32(0.5)}
    assert plain(value) == {"a": [1, 2.5], "b": "/x", "3": 4, "f": 0.5}
    with pytest.raises(RecipeError, match=r"a\[1\]: a recipe holds text, .* found ndarray"):
        plain({"a": [1, np.zeros(3)]})
