"""Float32 against float64: told figure by figure, and found out where rounding is not the cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metaforge import numerics
from metaforge.cli import main
from metaforge.numerics import Figures, drifts, figures


@pytest.fixture(scope="module")
def double() -> Figures:
    return figures("float64")


def test_this_machine_s_float32_is_as_far_as_rounding_explains(double):
    found = drifts(figures("float32"), double)
    assert [one.what for one in found] == ["alphas", "losses", "scores"]
    assert all(one.explained for one in found), found
    assert all(one.found > 0 for one in found)  # two precisions, and none is the other


def test_a_run_in_float64_is_the_same_again(double):
    assert all(one.found == 0 for one in drifts(figures("float64"), double))


@pytest.mark.parametrize("what", ["alphas", "losses", "scores"])
def test_what_rounding_does_not_explain_is_told(double, what, monkeypatch, capsys):
    values = getattr(double, what).copy()
    values.flat[np.abs(values).argmax()] *= 1.01
    other = replace(double, **{what: values})
    monkeypatch.setattr(numerics, "figures", lambda p: other if p == "float32" else double)
    assert main(["doctor", "--numerics"]) == 5
    out, err = capsys.readouterr()
    assert what in out
    assert f"more than rounding explains: {what};" in err
