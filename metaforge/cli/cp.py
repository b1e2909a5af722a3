"""``metaforge cp``."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command(short_help="Copy a shipped recipe, to change it.")
@click.argument("recipe")
@click.argument("destination", default=os.curdir)
def command(recipe: str, destination: str) -> None:
    """Copy a shipped recipe to DESTINATION, a file or a folder (default: here).

    A folder that ends in / is made where there is none.
    """
    from metaforge.recipe.find import find_recipe

    source = find_recipe(recipe)
    target = Path(destination)
    if destination.endswith(os.sep) or target.is_dir():
        target = target / source.name
    try:
        if destination.endswith(os.sep) and not target.parent.exists():
            target.parent.mkdir(parents=True)
        with target.open("xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        raise click.UsageError(f"{target} exists: nothing is overwritten") from None
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}") from None
    click.echo(f"{target}: run it with 'metaforge run {target}'")
