"""``metaforge cite``."""

from __future__ import annotations

import click

from metaforge.citations import WANG2020


@click.command(short_help="Print BibTeX for what a recipe uses.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def command(recipe: str, overrides: tuple[str, ...]) -> None:
    """Print BibTeX entries: the method's, and those of every component a recipe uses."""
    from metaforge.recipe import load

    chosen = load(recipe, overrides, check=False).chosen
    entries = [WANG2020, *(entry for choice in chosen for entry in choice.component.cites)]
    click.echo("\n\n".join({_key(entry): entry.strip() for entry in entries}.values()))


def _key(entry: str) -> str:
    """``wang2020structured`` of ``@inproceedings{wang2020structured, ...}``."""
    return entry.partition("{")[2].partition(",")[0].strip()
