"""docs/reliability.md names tests that exist, and `make torture` runs those of this folder."""

from __future__ import annotations

import re

import pytest

from tests.torture.harness import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_promise_has_its_test(path, name):
    assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")


def test_every_test_of_a_fault_stands_on_the_page():
    named = {name for _, name in NAMED}
    for file in (ROOT / "tests" / "torture").glob("test_*.py"):
        if file.name == "test_page.py":
            continue
        found = re.findall(
            r"^def (test_\w+)\([^)]*\):\n(?!    \"\"\"The broken)", file.read_text(), re.M
        )
        assert set(found) - named <= UNNAMED, file.name


#: What holds the harness itself, or a further case of a promise.
UNNAMED = {
    "test_a_run_that_waits_for_a_full_pipe_can_be_killed_and_resumed",
}
