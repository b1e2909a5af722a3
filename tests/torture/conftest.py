"""One process that forks all commands, one run that met no fault, and the sums at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.torture.harness import Ended, Zygote, figures, folder, run, tally


class Whole(NamedTuple):
    """A run that met no fault."""

    cwd: Path
    path: Path
    ended: Ended
    figures: dict[str, Any]


@pytest.fixture(scope="session")
def zygote(tmp_path_factory) -> Iterator[Zygote]:
    process = Zygote(tmp_path_factory.mktemp("said"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def whole(zygote, tmp_path_factory) -> Whole:
    cwd = tmp_path_factory.mktemp("whole")
    ended = run(zygote, cwd)
    assert ended.code == 0, ended.err
    path = folder(cwd)
    assert path is not None
    return Whole(cwd, path, ended, figures(path))


def pytest_terminal_summary(terminalreporter) -> None:
    if tally:
        terminalreporter.section("faults injected, and what came of them")
        for (kind, outcome), count in sorted(tally.items()):
            terminalreporter.line(f"{kind:<40} {outcome:<28} {count}")
