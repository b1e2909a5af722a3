"""SIGTERM ends a run as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def terminable() -> Iterator[None]:
    """Within, for SIGTERM too (only a main thread may set handlers)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
