"""A run goes on when its terminal is closed, and what it would have shown there is in its log."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from metaforge import stops
from metaforge.recipe import load
from tests.small import SMALL

pytestmark = pytest.mark.slow

#: Long enough to lose its terminal on the way.
CHANGES = ("meta_train.steps=600", "evaluate.targets=12", "evaluate.workers=2", "output=runs")


def _as_from_a_shell() -> None:
    """With a terminal of its own, and heeding SIGHUP, which these tests may run without (nohup)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class InTerminal:
    """A command that leads a session of its own, in a pseudo-terminal."""

    def __init__(self, command: list[str], **streams: int):
        self.ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=streams.get("stdout", theirs),
            stderr=streams.get("stderr", theirs),
            start_new_session=True,
            preexec_fn=_as_from_a_shell,
        )
        os.close(theirs)

    def close_terminal(self) -> None:
        """As a window that is closed: the session's processes get SIGHUP, its output fails."""
        os.close(self.ours)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_terminal()

    def read_until(self, text: bytes) -> bytes:
        shown = b""
        while text not in shown:
            shown += os.read(self.ours, 4096)
        return shown


@pytest.fixture
def command(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    Path("small.yaml").write_text(load(SMALL).to_yaml())
    return [sys.executable, "-m", "metaforge", "run", "small.yaml", *CHANGES]


def wait_for_folder(process: subprocess.Popen) -> Path:
    while process.poll() is None:
        found = list(Path("runs").glob("*/metrics.jsonl"))
        if found:
            return found[0].parent
        time.sleep(0.01)
    pytest.fail("the run ended before it began to learn")


def test_a_closed_terminal_ends_no_run(command):
    ran = InTerminal(command)
    folder = wait_for_folder(ran.process)
    ran.close_terminal()
    assert ran.process.wait(240) == 0
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert "conditional (J =" in (folder / "log.txt").read_text()


def test_nor_does_a_pipe_to_a_command_that_the_terminal_takes_along(command):
    """``metaforge run ... 2>&1 | tee log``: tee ends, and with it the reader of both streams."""
    reader, writer = os.pipe()
    ran = InTerminal(command, stderr=writer)
    os.close(writer)
    folder = wait_for_folder(ran.process)
    os.killpg(ran.process.pid, signal.SIGHUP)
    time.sleep(0.2)
    os.close(reader)
    assert ran.process.wait(240) == 0
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    ran.close_terminal()


def test_a_signal_that_comes_a_moment_after_the_reader_has_gone_counts(monkeypatch):
    monkeypatch.setattr(os, "dup2", lambda *numbers: None)  # the streams stay those of the tests
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        for comes in (True, False):
            monkeypatch.setattr(stops, "_closed", threading.Event())
            with stops.outliving_terminal():
                if comes:
                    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGHUP)).start()
                assert stops.terminal_closed() == comes
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_that_leaves_by_itself_still_ends_it(command):
    """Without SIGHUP a pipe that nobody reads is a mistake of who started the run."""
    reader, writer = os.pipe()
    ran = InTerminal(command, stderr=writer)
    os.close(writer)
    folder = wait_for_folder(ran.process)
    os.close(reader)
    assert ran.process.wait(240) == 141
    assert json.loads((folder / "status.json").read_text())["state"] != "done"
    ran.close_terminal()


def test_progress_is_drawn_in_a_terminal_alone(command):
    """A bar with rate and time left; elsewhere no escape sequence, no colour."""
    ran = InTerminal(command)
    shown = ran.read_until(b"conditional (J =")
    ran.end()
    assert b"\x1b[" in shown
    assert b"/s" in shown
    plain = subprocess.run(command, capture_output=True, check=True, timeout=240)
    assert b"\x1b" not in plain.stdout + plain.stderr
    assert b"\r" not in plain.stdout + plain.stderr


def test_no_color_is_heeded(command, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    ran = InTerminal(command)
    shown = ran.read_until(b"conditional (J =")
    ran.end()
    assert b"\x1b[3" not in shown, "cursor movements are no colours"
