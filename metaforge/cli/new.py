"""``metaforge new``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command(short_help="Make a plugin of your own, tested and ready to install.")
@click.argument("kind", metavar="kernel|weighting|inner-algorithm|dataset|backbone|model|tracker")
@click.argument("name")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="The folder; default: metaforge-NAME."
)
def command(kind: str, name: str, folder: Path | None) -> None:
    """Write a distribution with one component NAME, its options and tests, to change.

    It works as it is: install it, and 'metaforge plugins check NAME' holds.
    """
    from metaforge.scaffold import scaffold, template

    made, chosen = scaffold(kind, name, folder), template(kind)
    click.echo(f"made {made} ({chosen.kind.replace('_', ' ')} {name}). Next:")
    for line in (
        f"pip install -e {shlex.quote(str(made))}",
        f"metaforge plugins check {name}",
        f"metaforge run {chosen.use.format(name=name)}",
    ):
        click.echo(f"  {line}")
