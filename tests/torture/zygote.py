"""A process that has everything imported, and forks itself for each command it is asked for.

A request is a line of JSON on standard input; the answer, a line on standard output. The signals
of a fault are sent from here, so that they meet the command wherever it is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any


def serve() -> None:
    _import_all()
    for line in sys.stdin:
        answer = _answer(json.loads(line))
        print(json.dumps(answer), flush=True)


def _import_all() -> None:
    """By a run: much is imported where it is first needed. What such a run leaves in memory, the
    project's own workers, which are forked after phase 1, have as well."""
    import metaforge
    from metaforge.cli import call  # noqa: F401
    from tests.torture.harness import RECIPE

    with tempfile.TemporaryDirectory() as place:
        os.environ["METAFORGE_CACHE"] = place
        metaforge.run(RECIPE, f"output={place}", quiet=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """``code`` is negative for a signal that ended the command; ``stages`` when each was entered,
    in seconds; ``struck`` whether the fault's signal was sent."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os._exit(_command(request, write))
    os.close(write)
    fault, stages, struck, began = request["fault"], {}, False, time.monotonic()
    said: dict[str, Any] = {}
    with os.fdopen(read) as lines:
        for line in lines:
            word, _, value = line.strip().partition(" ")
            if word == "bytes":
                said["bytes"] = int(value)
                continue
            stages[value] = time.monotonic() - began
            if fault.get("kind") == "signal" and fault["stage"] == value and not struck:
                time.sleep(fault["after"])
                os.kill(pid, fault["signal"])
                struck = True
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    return {"code": code, "stages": stages, "struck": struck, "seconds": seconds, **said}


def _command(request: dict[str, Any], pipe: int) -> int:
    """The child's life: its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    for number, path in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags), number)
    try:
        from metaforge.cli import main
        from tests.torture import faults

        faults.install(request["fault"], lambda stage: _tell(pipe, f"stage {stage}"))
        code = main(request["argv"])
        _tell(pipe, f"bytes {faults.written}")
        sys.stdout.flush()
        sys.stderr.flush()
        return code
    except BaseException:
        Path(request["stderr"]).write_text(traceback.format_exc())
        return 99


def _tell(pipe: int, line: str) -> None:
    os.write(pipe, f"{line}\n".encode())


if __name__ == "__main__":
    serve()
