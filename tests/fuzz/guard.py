"""What may not happen while a hostile file is read: it is heard, and ends the reading.

Python tells its audit hooks of each file that is opened or removed, each process started, each
address connected to, each code object that is run by ``exec``. A hook stays for the rest of a
process; it heeds what happens under ``watching`` alone. Memory is held by the system's limit on
the address space, time by a timer of the processor's seconds.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Forbidden(BaseException):
    """Reading an input did what no reading may do."""


class TooLong(BaseException):
    """Reading an input took more of the processor than any input may."""


_STARTS = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen")
_NEVER = frozenset(
    [*_STARTS, "pty.spawn", "ctypes.dlopen", "os.putenv", "pickle.find_class", "code.__new__"]
)
_CHANGES = frozenset(
    ["os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod"]
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Where an ``exec`` is an import, or a class that ``dataclasses`` and ``collections`` make.
_CODE = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib")})

#: What the system says of the memory.
_FACTS = ("/proc/self", "/proc/meminfo", "/sys/fs/cgroup")


class Guard:
    """``inside`` is the only folder that may be written to; ``reads`` those that may be read
    beside it, or None for any."""

    def __init__(self, inside: Path, reads: tuple[Path, ...] | None):
        self.inside = str(inside.resolve())
        self.reads = None if reads is None else (*map(str, reads), *_CODE, sys.prefix, *_FACTS)
        self.on = False
        self.heard: str | None = None  # what was refused, whoever swallowed the exception
        sys.addaudithook(self._heard)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in _NEVER or event.startswith("socket."):
            self._refuse(event, arguments)
        elif event == "open":
            path, mode, flags = arguments
            writes = (isinstance(flags, int) and flags & _WRITES) or (
                mode and set(mode) & set("wax+")
            )
            self._check_path(event, path, bool(writes))
        elif event in _CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                self._check_path(event, path, True)

    def _check_path(self, event: str, path: Any, writes: bool) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # an open file
        place = os.path.realpath(os.fsdecode(path))
        if place.startswith(self.inside) or place == os.devnull:
            return
        if writes or (self.reads is not None and not place.startswith(self.reads)):
            self._refuse(event, (place, "to be written" if writes else "to be read"))

    def _refuse(self, event: str, arguments: Any) -> None:
        self.on = False
        self.heard = f"{event} {str(arguments)[:200]}"
        raise Forbidden(self.heard)


def limit_memory(mib: int) -> None:
    """No more than so much beyond what this process has now."""
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (own + mib * 2**20, hard))


@contextmanager
def limited_time(seconds: float) -> Iterator[None]:
    """``TooLong`` after so many seconds of the processor."""

    def late(*_: Any) -> None:
        raise TooLong(f"more than {seconds:g} s of the processor")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
