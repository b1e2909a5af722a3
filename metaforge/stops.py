"""Signals that end a run: SIGTERM ends it as Ctrl-C does, and a closed terminal does not."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: Whether SIGHUP came; moments that are waited for it, and their seconds.
_closed = threading.Event()
_MOMENTS, _MOMENT = 10, 0.05


def interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def terminable() -> Iterator[None]:
    """Within, for SIGTERM too (only a main thread may set handlers)."""
    with _handling(signal.SIGTERM, interrupt):
        yield


@contextmanager
def outliving_terminal() -> Iterator[None]:
    """Within, a terminal that is closed (SIGHUP) ends nothing: what would be shown there goes
    nowhere from then on. A process that ignores the signal, as under nohup, goes on so."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    with _handling(signal.SIGHUP, _silence):
        yield


def terminal_closed() -> bool:
    """Whether SIGHUP came, or comes within moments: who reads a pipe may die of it before a
    process gets to hear of its own."""
    for _ in range(_MOMENTS):
        if _closed.is_set():
            return True
        time.sleep(_MOMENT)
    return False


def _silence(number: int, frame: Any) -> None:
    """Output to the terminal, and messages to a pipe whose reader may have gone with it, go
    nowhere, in forked workers too. A pipe of results stays: who reads it may well be there."""
    _closed.set()
    null = os.open(os.devnull, os.O_WRONLY)
    for number, pipes in ((1, False), (2, True)):
        with suppress(OSError):
            piped = stat.S_ISFIFO(os.fstat(number).st_mode)
            if os.isatty(number) or (pipes and piped):
                os.dup2(null, number)
    os.close(null)


@contextmanager
def _handling(which: int, handler: Callable[[int, Any], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(which, handler)
    try:
        yield
    finally:
        signal.signal(which, before)
