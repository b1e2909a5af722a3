"""``metaforge cite``."""

from __future__ import annotations

import click


@click.command(short_help="Print BibTeX for what a recipe uses.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def command(recipe: str, overrides: tuple[str, ...]) -> None:
    """Print BibTeX entries: the method's, and those of every component a recipe uses."""
    from metaforge.citations import entries
    from metaforge.recipe import load

    click.echo("\n\n".join(entries(load(recipe, overrides, check=False).chosen)))
