"""What a run says on the terminal: the only user of rich.

Everything goes to standard error, as standard output is for results;
on a terminal long stages show a bar with rate and time left, elsewhere a line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Seconds between lines of a stage where no bar can be shown.
_LINE_EVERY = 30.0
#: Work of fewer seconds goes by without a word, unless it is a stage of a run.
_UNTOLD = 2.0


class Console:
    """Says things unless ``quiet``; every line also goes to ``log``."""

    def __init__(self, quiet: bool = False, log: Callable[[str], None] = lambda line: None):
        self._rich = RichConsole(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self.log = log
        self._shown = False

    def line(self, text: str) -> None:
        self._rich.print(text, markup=False)
        self.log(text)

    def header(self, rows: dict[str, str]) -> None:
        """What runs, one fact a line."""
        width = max(map(len, rows))
        for key, value in rows.items():
            self.line(f"{key:<{width}}  {value}")

    @contextmanager
    def progress(self, name: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
        """A stage that leaves no line where it took less than two seconds: for
        ``Context.progress``."""
        with self.stage(name, total, done, least=_UNTOLD) as advance:
            yield advance

    @contextmanager
    def stage(
        self, name: str, total: int, done: int = 0, least: float = 0.0
    ) -> Iterator[Callable[..., None]]:
        """A bar over ``total``; the body calls ``advance(n, note)``. A line at the end where it
        took ``least`` seconds."""
        start = time.perf_counter()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        live = self._rich.is_terminal and not self._shown  # of bars, a terminal has room for one
        self._shown = self._shown or live
        with Progress(*columns, console=self._rich, transient=True, disable=not live) as bar:
            task = bar.add_task(name, total=total, completed=done, rate="", note="")
            gone, told = 0, start

            def advance(n: int = 1, note: str = "") -> None:
                nonlocal gone, told
                gone, now = gone + n, time.perf_counter()
                rate = gone / max(now - start, 1e-9)
                bar.update(task, advance=n, rate=f"{rate:.1f}/s", note=note)
                if not live and now - told > _LINE_EVERY:
                    told, left = now, (total - done - gone) / rate
                    self.line(
                        f"{name}: {done + gone} of {total}, {rate:.3g} a second, {left:.0f} s left"
                    )

            try:
                yield advance
            finally:
                self._shown = self._shown and not live
        if (seconds := time.perf_counter() - start) >= least:
            self.line(f"{name}: {total - done} in {seconds:.1f} s")
