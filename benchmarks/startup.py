"""How long the verbs that need no torch take, as whole processes, against the limit of 0.5 s."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks.harness import Row, compare

CPU_ONLY = True
LIMIT = 0.5
_PEER = f"limit, {LIMIT} s"
VERBS = {
    "metaforge --help": ("--help",),
    "metaforge ls": ("ls",),
    "metaforge validate sp_maml": ("validate", "sp_maml"),
}


def rows() -> list[Row]:
    timed = against_python(rounds=9)
    limit = {_PEER: (LIMIT,) * 9}
    return [Row(timed.name, _PEER, {**limit, **timed.seconds}, dict.fromkeys(VERBS, 1.0))]


def against_python(rounds: int) -> Row:
    """Against an interpreter that does nothing: a ratio within rounds."""
    calls = {name: _process("-m", "metaforge", *arguments) for name, arguments in VERBS.items()}
    return compare(
        "start-up",
        {"python -c pass": _process("-c", "pass"), **calls},
        peer="python -c pass",
        rounds=rounds,
        least_seconds=0.0,
        memory=False,  # of other processes
    )


def _process(*arguments: str) -> Callable[[], None]:
    """With bytecode, as an installed package has it, whatever this machine's setting."""
    command = [sys.executable, *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def call() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    return call
