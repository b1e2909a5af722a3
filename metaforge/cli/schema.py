"""``metaforge schema``."""

from __future__ import annotations

import json

import click


@click.command(short_help="Print the JSON schema of recipes.")
def command() -> None:
    """Print the JSON schema of recipes, with the options of every installed plugin.

    An editor that knows it completes and checks recipes as they are written.
    """
    from metaforge.recipe.json_schema import recipe_schema

    click.echo(json.dumps(recipe_schema(), indent=2))
