"""Targets that cannot be imported are found by ``validate``, which imports none."""

from __future__ import annotations

import sys
import types

import pytest

from metaforge.errors import RecipeError
from metaforge.importable import obstacle
from metaforge.recipe import load

KERNELS = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", "mine", {target!r})]
"""
HEAVY = "raise SystemError('imported')\n"


@pytest.fixture
def package(site):
    site.module("deep/__init__", HEAVY)
    site.module("deep/inner/__init__", HEAVY)
    site.module("deep/inner/kernel", HEAVY + "class Kernel: pass\n")
    site.module("deep/lazy", HEAVY + "def __getattr__(name): ...\n")
    site.module("deep/star", HEAVY + "from deep.inner.kernel import *\n")
    site.module("flat", HEAVY + "Kernel = None\n")
    return site


@pytest.mark.parametrize(
    "target",
    ["deep.inner.kernel:Kernel", "deep.lazy:Kernel", "deep.star:Kernel", "flat:Kernel", "math:pi"],
)
def test_what_may_be_there_is_left_to_the_import(package, target):
    assert obstacle(target) == ""
    assert not {"deep", "flat"} & set(sys.modules)


ABSENT = {
    "nowhere:Kernel": "there is no module 'nowhere'",
    "nowhere.deep:Kernel": "there is no module 'nowhere.deep'",
    "deep.inner.kernle:Kernel": "there is no module 'deep.inner.kernle'",
    "flat.kernel:Kernel": "there is no module 'flat.kernel'",
    "deep.inner.kernel:Kernle": "kernel.py defines no 'Kernle'",
    "flat:Kernle": "flat.py defines no 'Kernle'",
}


@pytest.mark.parametrize(("target", "reason"), ABSENT.items(), ids=ABSENT)
def test_what_is_not_there_is_said(package, target, reason):
    assert obstacle(target).endswith(reason)
    assert not {"deep", "flat"} & set(sys.modules)


def test_a_loaded_module_is_asked_itself(monkeypatch):
    made = types.ModuleType("made")
    made.Kernel = None
    monkeypatch.setitem(sys.modules, "made", made)
    assert obstacle("made:Kernel") == ""


@pytest.mark.parametrize("target", ["nowhere.kernel:Kernel", "fakeplug_parts:Kernle"])
def test_a_recipe_that_chooses_it_is_refused(fakes, write_recipe, target):
    fakes.plugin("mine", KERNELS.format(target=target))
    assert load(write_recipe()).problems() == [], "what the recipe does not choose is no problem"
    with pytest.raises(RecipeError) as caught:
        load(write_recipe(), ["kernel=mine"])
    (problem,) = caught.value.problems
    assert problem.path == "kernel.use"
    assert problem.message.startswith(f"task_kernel 'mine': {target} cannot be imported: ")
    assert caught.value.exit_code == 4
