"""``metaforge compare``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from metaforge.errors import printable


def _seeds(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise click.BadParameter(f"expected whole numbers such as 0,1,2, found {text!r}")
    return tuple(dict.fromkeys(map(int, text.split(","))))


@click.command(short_help="Compare runs, or the methods of a grid.")
@click.argument("words", nargs=-1, metavar="RUN RUN... | RECIPE [KEY=VALUE]...")
@click.option(
    "--over",
    "over",
    multiple=True,
    metavar="KEY=A,B,...",
    help="Vary an option of RECIPE; every combination is a method. Repeatable.",
)
@click.option("--seeds", callback=_seeds, metavar="0,1,2", help="Run each method with each seed.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the table goes; default: a new folder beside the runs.",
)
@click.option("--force", is_flag=True, help="Compare unlike runs, and say so in the table.")
@click.option("--quiet", is_flag=True, help="Print no progress, only the table.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON, nothing else.")
def command(
    words: tuple[str, ...],
    over: tuple[str, ...],
    seeds: tuple[int, ...],
    out: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare finished runs, or make and compare the runs of a grid.

    metaforge compare runs/A runs/B

    metaforge compare sp_ls --over weighting.use=tasml,uniform --seeds 0,1,2 bank.size=1000

    Runs that differ only in their seed are one method, a row of the table. Differences are
    paired on the same frozen targets. The table is printed, and saved as CSV, Markdown and
    JSON. Runs of a grid that are there already are taken again; stopped ones are resumed.
    """
    from metaforge import comparison

    if over or seeds or (len(words) > 1 and all("=" in word for word in words[1:])):
        if not words or "=" in words[0]:
            raise click.UsageError("say which recipe first, such as: metaforge compare sp_ls ...")
        if not over and not seeds:
            raise click.UsageError("say what to compare: --over KEY=A,B or --seeds 0,1")
        quiet = quiet or as_json
        found = comparison.compare_grid(
            words[0], words[1:], over=_over(over), seeds=seeds, out=out, force=force, quiet=quiet
        )
    elif len(words) > 1:
        found = comparison.compare_runs(words, out=out, force=force)
    else:
        raise click.UsageError("give two run folders or more, or a recipe with --over or --seeds")
    _show(found, as_json)


def _over(texts: tuple[str, ...]) -> dict[str, list[Any]]:
    from metaforge.comparison.grid import parse_over

    found: dict[str, list[Any]] = {}
    for key, values in map(parse_over, texts):
        found.setdefault(key, []).extend(values)
    return found


def _show(found: dict[str, Any], as_json: bool) -> None:
    from metaforge.comparison.render import as_text

    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{printable(as_text(found))}\nsaved in: {found['out']}")
