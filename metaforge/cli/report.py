"""``metaforge report``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Print a run's results.")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(run: Path) -> None:
    """Print the results of a run, from its folder RUN."""
    from metaforge.report import render_text

    click.echo(render_text(run))
