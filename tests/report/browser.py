"""A real browser by its WebDriver: pages opened at a size, in light or dark, and looked at."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)
#: Seconds that a browser has to start.
_START = 60


def present() -> bool:
    return bool(shutil.which("chromedriver") and (_browser() is not None))


def _browser() -> str | None:
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Browser:
    """One session."""

    def __init__(self, base: str, folder: Path, width: int, dark: bool):
        self._base = base
        options = {
            "binary": _browser(),
            "args": [
                *_FLAGS,
                f"--user-data-dir={folder}",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            ],
            "mobileEmulation": {"deviceMetrics": {"width": width, "height": 800, "pixelRatio": 1}},
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, page: Path) -> None:
        self._call(f"{self._session}/url", {"url": page.resolve().as_uri()})

    def ask(self, script: str) -> Any:
        return self._call(f"{self._session}/execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        """What the console was told."""
        found = self._call(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def close(self) -> None:
        self._call(self._session, None, "DELETE")

    def _call(self, path: str, body: Any, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self._base}{path}", data, method=method)
        asked.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(asked, timeout=_START) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextmanager
def browser(folder: Path, width: int = 1280, dark: bool = False) -> Iterator[Browser]:
    """A browser of its own, with an empty profile in ``folder``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(port)
        found = Browser(f"http://127.0.0.1:{port}", folder / "profile", width, dark)
        try:
            yield found
        finally:
            found.close()
    finally:
        driver.terminate()
        driver.wait()


def _wait(port: int) -> None:
    for _ in range(_START * 10):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("chromedriver does not listen")
