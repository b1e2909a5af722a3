"""Small glyphs: fewer images of every letter, in a cache folder of the session's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import metaforge
from metaforge.components import Context

SMALL = {"per_letter": 12, "per_face": 1, "shots": 1, "queries": 3}


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def make(cache) -> Callable:
    """``make(seed, **options)``: a source of small glyphs, its images kept for the session."""

    def build(seed: int = 0, **options):
        context = Context(seed=seed, cache_dir=cache)
        return metaforge.create("dataset", "glyphs", context=context, **SMALL | options)

    return build


@pytest.fixture(scope="session")
def source(make):
    return make()
