"""``metaforge report``."""

from __future__ import annotations

from pathlib import Path

import click

from metaforge.errors import printable


@click.command(short_help="Print a run's results, and make its page.")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--html",
    "to",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the page goes; default: report.html in the run's folder.",
)
@click.option("--open", "opened", is_flag=True, help="Show the page in a browser.")
@click.option("--text", "text_alone", is_flag=True, help="Print the table alone, make no page.")
def command(run: Path, to: Path | None, opened: bool, text_alone: bool) -> None:
    """Print the results of a run, from its folder RUN, and make its page.

    The page is one HTML file that needs nothing else: tables, figures, what was recalled, the
    recipe and how to cite it. Where it is goes to standard error.
    """
    from metaforge.report import html, render_text

    if text_alone and (to or opened):
        raise click.UsageError("--text makes no page: give it without --html and --open")
    click.echo(printable(render_text(run)))
    if text_alone:
        return
    page = html.write_run(run, to=to)
    click.echo(f"page: {page}", err=True)
    if opened:
        _open(page)


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        click.echo(f"note: no browser was found: open {page} yourself", err=True)
