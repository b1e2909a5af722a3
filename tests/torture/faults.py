"""What is done to a run, in its own process, before the command begins.

Each fault is a plain dictionary with its ``kind``, so that a failing one can be written down.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from metaforge import pipeline, rundir

#: Bytes written so far through ``Path.open``, in all files.
written = 0
_open = Path.open


def install(fault: dict[str, Any], tell: Callable[[str], None]) -> None:
    """``tell`` hears of each stage that the run enters."""
    _tell_stages(tell)
    kind = fault.get("kind")
    Path.open = _counting(fault if kind == "byte" else {})  # type: ignore[method-assign]
    if kind == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault["limit"], fault["limit"]))
    elif kind == "clock":
        _turn_back(fault["seconds"])
    elif kind == "powerless":
        _drop_capabilities()


def _tell_stages(tell: Callable[[str], None]) -> None:
    enter = pipeline._Run._enter

    def told(run: Any, stage: str) -> None:
        tell(stage)
        enter(run, stage)

    pipeline._Run._enter = told  # type: ignore[method-assign]


def _counting(fault: dict[str, Any]) -> Callable[..., Any]:
    """``Path.open`` whose writers count, and fail or die at a byte: all before it is written."""

    def opened(path: Path, mode: str = "r", *given: Any, **options: Any) -> Any:
        file = _open(path, mode, *given, **options)
        return _Writer(file, fault) if set(mode) & set("wax+") else file

    return opened


class _Writer:
    def __init__(self, file: Any, fault: dict[str, Any]):
        self._file, self._fault = file, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    def __iter__(self) -> Any:
        return iter(self._file)

    def write(self, data: Any) -> int:
        global written
        room = self._fault.get("at", float("inf")) - written
        if len(data) <= room:
            written += len(data)
            return self._file.write(data)
        room = max(0, int(room))
        written += room
        self._file.write(data[:room])
        self._file.flush()
        if self._fault["how"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _turn_back(seconds: float) -> None:
    """Each look at the wall clock finds it set back further."""
    real, looks = time.time, 0

    def earlier() -> float:
        nonlocal looks
        looks += 1
        return real() - seconds * looks

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            nonlocal looks
            looks += 1
            return datetime.now(tz) - timedelta(seconds=seconds * looks)

    time.time = earlier
    rundir.datetime = Earlier  # type: ignore[misc]


def _drop_capabilities() -> None:
    """Permissions hold for root as for others from here on."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    none = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(Header(0x20080522, 0)), none):
        raise OSError(ctypes.get_errno(), "capset")
