"""The one large computation takes the cores that it may, and gives the setting back."""

from __future__ import annotations

import pytest
import torch

from metaforge.threads import cores, every_core


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("3,1", 3),
        ("", None),
        ("0", None),
        ("many", None),
        ("-2", None),
        (9 * "9", 1024),
    ],
)
def test_the_variable_is_heeded_where_it_is_a_number(said, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    before = torch.get_num_threads()
    with every_core():
        assert torch.get_num_threads() == (expected or cores())
    assert torch.get_num_threads() == before


def test_the_setting_is_given_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), every_core():
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
