"""``metaforge cache ls`` and ``cache prune``."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from metaforge.cache import Entry

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Amount(click.ParamType):
    """A number with a unit, such as 30d or 10GB."""

    def __init__(self, name: str, units: dict[str, int], example: str):
        self.name, self._units, self._example = name, units, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        units = {unit.lower(): size for unit, size in self._units.items()}
        parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-zA-Z]+)", value.strip())
        if parts is None or parts[2].lower() not in units:
            known = ", ".join(self._units)
            message = f"expected such as {self._example} (units: {known}), found {value!r}"
            self.fail(message, param, ctx)
        return int(float(parts[1]) * units[parts[2].lower()])


@click.group(short_help="Say what the cache holds, and make room.")
def command() -> None:
    """List what the cache folder holds, or remove what was not used for long.

    The folder is METAFORGE_CACHE, or ~/.cache/metaforge. All in it can be made anew.
    """


@command.command(short_help="What lies in the cache folder, by kind.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every file.")
def ls(as_json: bool) -> None:
    """List the kinds of files in the cache folder: how many, their size, when last used."""
    from metaforge import cache
    from metaforge.cli.text import table
    from metaforge.components import Context

    folder = Context().cache_dir
    found, others = cache.entries(folder), cache.strangers(folder)
    if as_json:
        files = [_described(entry) for entry in found]
        told = {"folder": str(folder), "files": files, "others": [str(path) for path in others]}
        click.echo(json.dumps(told, indent=2))
        return
    rows = [
        (kind, *_summed(some), what)
        for kind, (what, _) in cache.KINDS.items()
        if (some := [entry for entry in found if entry.kind == kind])
    ]
    rows.append(("together", *_summed(found), ""))
    click.echo(folder)
    click.echo(table(rows, ("KIND", "FILES", "SIZE", "LAST USED", "WHAT")))
    if others:
        click.echo(f"and {len(others)} not known here, which prune leaves: {_some(others)}")


@command.command(short_help="Remove what was not used for long.")
@click.option(
    "--older-than",
    metavar="AGE",
    type=Amount("age", _SECONDS, "30d"),
    help="Remove what was not used for so long, such as 30d or 12h.",
)
@click.option(
    "--keep",
    metavar="SIZE",
    type=Amount("size", _BYTES, "10GB"),
    help="Then remove the longest unused until no more is left, such as 10GB.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every file.")
def prune(older_than: int | None, keep: int | None, as_json: bool) -> None:
    """Remove files of the cache folder that no process uses, and say what that freed.

    Without options only what processes that died had begun to write. Ends with 3 where a file
    cannot be removed.
    """
    from metaforge import cache
    from metaforge.components import Context
    from metaforge.errors import DataError

    folder = Context().cache_dir
    done = cache.prune(folder, older_than, keep)
    if as_json:
        told = {
            "folder": str(folder),
            "freed": done.freed,
            "left": done.left,
            "removed": [_described(entry) for entry in done.removed],
            "in_use": [_described(entry) for entry in done.in_use],
        }
        click.echo(json.dumps(told, indent=2))
    else:
        for entry in done.in_use:
            click.echo(f"in use, and left: {entry.path} ({size(entry.size)})")
        click.echo(
            f"{folder}: removed {len(done.removed)} files, {size(done.freed)} freed, "
            f"{size(done.left)} left"
        )
    if done.failed:
        lines = [f"{entry.path}: cannot be removed: {why}" for entry, why in done.failed]
        raise DataError("\n".join(lines))


def size(count: int) -> str:
    """Bytes in the largest unit of which there is one."""
    unit = ([unit for unit, length in _BYTES.items() if count >= length] or ["B"])[-1]
    return f"{count} B" if unit == "B" else f"{count / _BYTES[unit]:.1f} {unit}"


def _summed(some: list[Entry]) -> tuple[str, str, str]:
    """How many, how large, and when one was last used."""
    total = size(sum(entry.size for entry in some))
    return str(len(some)), total, _ago(max(entry.used for entry in some)) if some else ""


def _ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    fitting = [unit for unit, length in _SECONDS.items() if seconds >= length] or ["s"]
    return f"{seconds / _SECONDS[fitting[-1]]:.0f}{fitting[-1]} ago"


def _described(entry: Entry) -> dict[str, Any]:
    return {**entry._asdict(), "path": str(entry.path)}


def _some(paths: list[Any]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(path.name for path in paths[:3]) + more
