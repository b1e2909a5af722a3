"""The command line. Nothing is imported here, so that Ctrl-C meets a handler from the start."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 ok, 1 other, 2 usage or recipe, 3 data, 4 plugin, 5 numeric, 130 interrupted. With
    ``METAFORGE_DEBUG=1`` an error's traceback is shown as well.
    """
    try:
        from metaforge.cli.call import call

        return call(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
