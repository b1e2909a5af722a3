"""Doors that do what no door may, each of which must be found out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from metaforge.errors import DataError
from tests.fuzz.door import Door, Files
from tests.fuzz.mutate import mutated_json


def _seeds(folder: Path) -> list[Files]:
    return [{"a.json": b'{"n": 1}'}]


def _after(act: Callable[[Path, bytes], object]) -> Callable[[Path], object]:
    """On changed inputs alone, for a door reads its seeds."""

    def enter(folder: Path) -> None:
        content = (folder / "a.json").read_bytes()
        if content != _seeds(folder)[0]["a.json"]:
            act(folder, content)

    return enter


def _swallowed(folder: Path, content: bytes) -> None:
    try:
        subprocess.run(["true"], check=False)
    except BaseException:
        return


def _for_ever(folder: Path, content: bytes) -> None:
    while True:
        pass


def _outside(folder: Path, content: bytes) -> None:
    (folder / ".." / ".." / "metaforge-fuzz-specimen").write_bytes(content)


def _speechless(folder: Path, content: bytes) -> None:
    raise DataError("")


def _talkative(folder: Path, content: bytes) -> None:
    raise DataError("x" * 100_000)


#: What each does, and a word of what must be told of it.
ACTS: dict[str, tuple[Callable[[Path, bytes], object], str]] = {
    "traceback": (lambda folder, content: {}[content], "KeyError"),
    "runs": (lambda folder, content: os.system("true"), "Forbidden: os.system"),
    "starts_and_hides_it": (_swallowed, "subprocess.Popen"),
    "connects": (lambda folder, content: socket.getaddrinfo("localhost", 9), "socket."),
    "writes_outside": (_outside, "to be written"),
    "reads_outside": (lambda folder, content: Path("/etc/passwd").read_text(), "to be read"),
    "removes_outside": (lambda folder, content: Path("/tmp/no-such-x").unlink(), "os.remove"),
    "hangs": (_for_ever, "TooLong"),
    "grows": (lambda folder, content: bytearray(2 * 2**30), "MemoryError"),
    "speechless": (_speechless, "0 characters"),
    "talkative": (_talkative, "100000 characters"),
    "recursion": (lambda folder, content: json.loads("[" * 10**5), "RecursionError"),
}
SPECIMENS = {
    name: Door(name, _seeds, _after(act), {".json": mutated_json}, 0.0, slow=0.5)
    for name, (act, _) in ACTS.items()
}
