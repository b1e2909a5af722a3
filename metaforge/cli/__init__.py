"""The command line. Nothing is loaded from disk here, so that Ctrl-C meets a handler at once."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    ``metaforge.errors`` lists the codes. With ``METAFORGE_DEBUG=1`` an error's traceback is
    shown as well.
    """
    try:
        from metaforge.cli.call import call

        return call(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED


def process() -> int:
    """The command as a process of its own: ``main``, started and ended in less time.

    Starting makes no garbage, so none is looked for until long work begins
    (``environment.prepare``), nor at the end. pydantic's own plugins, which it would search
    all distributions for, have no part in recipes.
    """
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    try:
        return main()
    finally:
        gc.freeze()
