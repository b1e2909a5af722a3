"""``metaforge run`` as one of several processes: its ranks, its signals, its end."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from metaforge.errors import Followed, Interrupted, MetaforgeError
from metaforge.place import Place, idle
from metaforge.stops import interrupt

if TYPE_CHECKING:
    from metaforge.ranks import Ranks

#: Seconds that rank 0 has to tell what is wrong, before another does.
_PATIENCE = 3.0
#: Seconds until a rank that was told to stop ends, even from within a call that cannot be left.
_GRACE = 20.0


@contextmanager
def told_by_one() -> Iterator[None]:
    """Of ranks that all refuse the same words or recipe the first one says why; when it has ended,
    the launcher ends the others. One that is still there then has an error of its own."""
    try:
        yield
    except (MetaforgeError, click.ClickException):
        if idle():
            time.sleep(_PATIENCE)
        raise


@contextmanager
def ranks(place: Place | None) -> Iterator[dict[str, Ranks]]:
    """``ranks`` of a run of several, for the pipeline; nothing for one process, which imports
    nothing either. An error that leaves the body ends all of them, told by one."""
    if place is None:
        yield {}
        return
    # What torch's own code warns of, when a connection ends, is told below.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    _heed_signals()
    try:
        from metaforge.group import Group

        group = Group(place)
    except KeyboardInterrupt:
        raise Interrupted("stopped") if not place.rank else Followed("stopped", 130) from None
    try:
        yield {"ranks": group}
    except BaseException as error:
        shown = group.verdict(error)
        # A group that has lost a member cannot be taken down in good order.
        atexit.register(os._exit, getattr(shown, "exit_code", 1))
        if shown is error:
            raise
        raise shown from error
    group.leave()
    if place.rank:
        # It has said all. Now and then torch's own threads end a process that is on its way out by
        # SIGABRT, which a launcher takes for a failure of the run.
        atexit.register(os._exit, 0)


def _heed_signals() -> None:
    """SIGTERM, which the launcher sends once a rank has ended, stops a run as Ctrl-C does.

    A handler runs between two steps of the interpreter: never, where a rank waits within a
    library for another that is gone. So a thread, which hears of signals at once, ends it then.
    """

    def end_in_time() -> None:
        os.read(heard, 1)
        time.sleep(_GRACE)
        os._exit(Interrupted.exit_code)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    heard, said = os.pipe()
    os.set_blocking(said, False)
    signal.set_wakeup_fd(said)
    threading.Thread(target=end_in_time, daemon=True).start()
