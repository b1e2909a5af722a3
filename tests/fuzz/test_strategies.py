"""Values and bytes of any kind, made from nothing: read as written, or refused in words."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaforge import run_files
from metaforge.errors import DamagedFile, MetaforgeError, RecipeError
from metaforge.pickle_arrays import BadPickle
from metaforge.pickles import read_pickle
from metaforge.recipe import load
from metaforge.recipe.dialect import dump
from metaforge.recipe.document import read
from metaforge.recipe.schema import Recipe
from metaforge.records import check, load_tensors, read_lines

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KEYS = st.one_of(
    st.sampled_from([*Recipe.model_fields, "use", "path", "shots", "lambda", "grid", "lr"]),
    st.text(max_size=6),
)
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=8)),
    st.sampled_from(
        ["sinusoids", "maml", "tasml", "gaussian", "validate", "auto", "../x", "~", ""]
    ),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
#: Those of a file, or of a part of one.
SHAPES = [
    one
    for one in vars(run_files).values()
    if isinstance(one, type) and one.__module__ == run_files.__name__
]


@given(VALUES)
@FUZZ
def test_a_mapping_is_a_recipe_or_its_problems_are_told(value):
    with suppress(RecipeError):
        load(value if isinstance(value, dict) else {"data": value})


@given(st.dictionaries(KEYS, VALUES, max_size=4))
@FUZZ
def test_what_is_dumped_reads_back_or_is_refused(value):
    with suppress(RecipeError):
        assert _same(read(dump(value), "x").data, value)


def _same(found: Any, expected: Any) -> bool:
    return repr(found) == repr(expected)  # NaN is NaN, -0.0 is not 0.0


@given(st.lists(st.text(min_size=1, max_size=4) | KEYS, min_size=1, max_size=4), VALUES)
@FUZZ
def test_an_override_changes_the_recipe_or_is_refused(path, value):
    with suppress(RecipeError):
        load("sp_maml_sinusoids", [{".".join(path): value}], check=False)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@given(value=VALUES)
@settings(FUZZ, max_examples=30)
def test_json_of_another_shape_is_damage(shape, value):
    with suppress(DamagedFile):
        check("x.json", json.dumps(value), shape)


@given(st.binary(max_size=200))
@FUZZ
def test_bytes_are_lines_of_json_or_damage(tmp_path, data):
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with suppress(DamagedFile):
        read_lines(path, run_files.Record)


@given(st.binary(max_size=200))
@FUZZ
def test_bytes_are_tensors_or_damage(tmp_path, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with suppress(MetaforgeError):
        load_tensors(path)


@given(st.lists(st.sampled_from([bytes([code]) for code in range(256)]), max_size=60).map(b"".join))
@FUZZ
def test_instructions_in_any_order_are_plain_data_or_refused(data):
    with suppress(BadPickle):
        read_pickle(memoryview(b"\x80\x04" + data + b"."))


def test_text_that_is_no_recipe_is_refused_whole(tmp_path: Path):
    path = tmp_path / "x.yaml"
    for text in ("", "\0", "\ufeff", "a", "- 1", "? ", "{", "&a", "*a", "!!map", "--- a\n--- b"):
        path.write_text(text)
        with pytest.raises(RecipeError):
            load(path)
