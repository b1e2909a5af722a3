"""Plain text for terminals: tables and notes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import click


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Aligned columns; the last one is cut to the terminal's width where there is one."""
    lines = [*([tuple(header)] if header else []), *map(tuple, rows)]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    room = shutil.get_terminal_size((0, 0)).columns - sum(widths) - 2 * len(widths)
    return "\n".join(_row(line, widths, room) for line in lines)


def _row(cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    last = cells[-1]
    if 20 <= room < len(last):
        last = last[: room - 3] + "..."
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, last]).rstrip()


def indented(text: str, by: str = "  ") -> str:
    """Every line of a text moved right."""
    return "\n".join(by + line if line else line for line in text.splitlines())


def note_failed_plugins() -> None:
    """Tell on stderr which installed plugins are left out because they fail."""
    from metaforge.plugins import host

    for plugin in host().plugins:
        if plugin.state == "failed":
            click.echo(f"note: {plugin} is left out: {plugin.reason}", err=True)
