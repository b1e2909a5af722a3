"""``metaforge cp``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Copy a shipped recipe, to change it.")
@click.argument("recipe")
@click.argument("destination", required=False, type=click.Path(path_type=Path))
def command(recipe: str, destination: Path | None) -> None:
    """Copy a shipped recipe to DESTINATION, a file or a folder (default: here)."""
    from metaforge.recipe.find import find_recipe

    source = find_recipe(recipe)
    target = destination or Path(source.name)
    if target.is_dir():
        target = target / source.name
    try:
        with target.open("xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        raise click.UsageError(f"{target} exists: nothing is overwritten") from None
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}") from None
    click.echo(f"{target}: run it with 'metaforge run {target}'")
