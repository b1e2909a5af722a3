"""Several ranks of the command line as forked processes: what they need is imported once, here."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  (what the first optimiser imports)

import metaforge.group
import metaforge.pipeline  # noqa: F401
from metaforge.cli import main

_FORK = multiprocessing.get_context("fork")
_IN_TIME = 60.0


class Ranks:
    """``metaforge ARGUMENTS`` on K ranks; ``change(rank)`` is called in each before it.

    With ``launcher`` the first that fails has the others sent SIGTERM, as by torchrun.
    """

    def __init__(
        self,
        size: int,
        arguments: Sequence[str],
        name: str = "said",
        change: Callable[[int], None] = lambda rank: None,
        launcher: bool = False,
    ):
        self.launcher = launcher
        self.files = [Path(f"{name}.{rank}") for rank in range(size)]
        port = str(random.SystemRandom().randrange(20_000, 60_000))
        self.processes: list[Any] = []
        for rank, file in enumerate(self.files):
            names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
            values = map(str, (rank, rank, size, size, port))
            here = {**dict(zip(names, values, strict=True)), "MASTER_ADDR": "127.0.0.1"}
            process = _FORK.Process(target=_rank, args=(here, rank, arguments, file, change))
            process.start()
            self.processes.append(process)

    def send(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks:
            os.kill(self.processes[rank].pid, number)

    def until(self, there: Callable[[], Any]) -> Any:
        """What ``there()`` finds, once it finds something, while all ranks live."""
        deadline = time.monotonic() + _IN_TIME
        while not (found := there()):
            assert all(process.is_alive() for process in self.processes), self.said()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return found

    def end(self) -> list[int]:
        """Exit codes, as a shell tells them but for signals; none may hang."""
        deadline = time.monotonic() + _IN_TIME
        while any(process.is_alive() for process in self.processes):
            assert time.monotonic() < deadline, "a rank hangs"
            if self.launcher and any(process.exitcode for process in self.processes):
                for process in self.processes:
                    process.terminate()
            time.sleep(0.02)
        return [process.exitcode for process in self.processes]

    def said(self) -> str:
        """All that all ranks said."""
        return "".join(file.read_text() for file in self.files)

    def errors(self) -> list[str]:
        return [line for line in self.said().splitlines() if line.startswith("error: ")]


def _rank(
    here: dict[str, str],
    rank: int,
    arguments: Sequence[str],
    file: Path,
    change: Callable[[int], None],
) -> None:
    os.environ.update(here)
    with file.open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        import sys

        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        change(rank)
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
