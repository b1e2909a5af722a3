"""Standard output and standard error, on which a write that fails is told and never traced."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

from metaforge.errors import DataError, MetaforgeError
from metaforge.stops import terminal_closed


class ReaderLeft(MetaforgeError):
    """Nobody reads what is written, as after ``| head``; a tool of Unix then ends by SIGPIPE."""

    exit_code = 128 + signal.SIGPIPE


@contextmanager
def guarded() -> Iterator[None]:
    """Within, a write that fails raises ``DataError``, or ``ReaderLeft``."""
    if sys.stdout is None:
        sys.stdout = _opened(1, os.O_RDONLY)  # so that writing fails, as it does elsewhere
    if sys.stderr is None:
        sys.stderr = _opened(2, os.O_WRONLY)  # whoever closed it wants no messages
    out, err = _Guarded(sys.stdout, "standard output"), _Guarded(sys.stderr, "standard error")
    with redirect_stdout(out), redirect_stderr(err):
        yield


def _opened(number: int, mode: int) -> TextIO:
    """A stream that was closed, on the null device: no file may get its number."""
    null = os.open(os.devnull, mode)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    return os.fdopen(number, "w")


class _Guarded:
    """A stream of text whose failing writes say which stream it was.

    Once failed, it goes on failing: who probes a stream first (click does) hides the first time.
    A terminal that is no longer there fails nothing.
    """

    def __init__(self, stream: TextIO, name: str):
        self._stream, self._name = stream, name
        self._terminal = stream.isatty()
        self._messages = stream is sys.stderr
        self._failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> None:
        if self._failure is None:
            try:
                action(*arguments)
                return
            except BrokenPipeError:
                if not (self._messages and terminal_closed()):
                    self._failure = ReaderLeft(f"{self._name}: its reader has left")
            except OSError as error:
                if not (self._terminal and error.errno == errno.EIO):
                    self._failure = DataError(f"{self._name}: cannot write: {error.strerror}")
            self._discard()
        if self._failure is not None:
            raise self._failure

    def _discard(self) -> None:
        """Send what is still held back, and all that comes, nowhere."""
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
