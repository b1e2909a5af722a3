"""Whose fault an exception is that no part of the program raises on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from metaforge.errors import DataError, MetaforgeError, PluginError, one_line
from metaforge.plugins import PluginRecord, host

#: What torch's RuntimeError says where the memory of the CPU, or of a device, does not suffice.
_NO_MEMORY = ("can't allocate memory", "out of memory")


def told(error: BaseException) -> BaseException:
    """The error that a user should see in place of ``error``, or ``error`` itself.

    One that a plugin's code raised becomes a ``PluginError`` which names the plugin, its
    function and what the engine was at (the error's notes); a lack of memory a ``DataError``.
    Asked where the error was raised: its traceback does not cross processes.
    """
    if isinstance(error, MetaforgeError | KeyboardInterrupt):
        return error
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return DataError(
            f"not enough memory{_at(error)}: {one_line(error)}; take smaller sizes (bank.size, "
            "batches, ways, shots, the model), or fewer evaluate.workers, a smaller evaluate.batch"
        )
    for frame in _innermost_first(error):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "metaforge":
            break
        for record in _plugins_of(package):
            function = frame.f_code.co_qualname
            return PluginError(f"{record}: {function} failed{_at(error)}: {one_line(error)}")
    if isinstance(error, SystemExit):
        return PluginError(f"something left the program by sys.exit({error.code!r}){_at(error)}")
    return error


def _at(error: BaseException) -> str:
    notes = getattr(error, "__notes__", [])
    return f" ({', '.join(notes)})" if notes else ""


def _innermost_first(error: BaseException) -> Iterator[FrameType]:
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return reversed(frames)


def _plugins_of(package: str) -> list[PluginRecord]:
    return [record for record in host().plugins if package and record.package == package]
