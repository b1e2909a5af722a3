"""``metaforge pretrain``."""

from __future__ import annotations

import click


@click.command(short_help="Train a backbone for features.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(recipe: str, overrides: tuple[str, ...], quiet: bool) -> None:
    """Train a backbone on a data set's training classes, by a recipe of its own kind.

    Writes the weights, and a card with their accuracy beside them.
    """
    from metaforge.pretrain_recipe import load

    loaded = load(recipe, overrides)
    from metaforge.components import Context
    from metaforge.console import Console
    from metaforge.environment import pick_device, prepare
    from metaforge.pretraining import pretrain

    console = Console(quiet=quiet)
    prepare(loaded.recipe.threads)
    context = Context(
        seed=loaded.recipe.seed,
        base_dir=loaded.base_dir,
        device=pick_device(loaded.recipe.device),
        report=console.line,
        progress=console.progress,
    )
    card = pretrain(loaded.recipe, context)
    for name in ("held_out", "nearest_class_mean"):
        told = ", ".join(f"{label} {100 * value:.1f} %" for label, value in card[name].items())
        click.echo(f"{name.replace('_', ' ')}: {told}")
    click.echo(f"wrote {loaded.recipe.output} in {card['seconds']:.0f} s")
