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
    from metaforge.errors import Interrupted
    from metaforge.pretraining import pretrain
    from metaforge.stops import terminable

    console = Console(quiet=quiet)
    prepare(loaded.recipe.threads)
    context = Context(
        seed=loaded.recipe.seed,
        base_dir=loaded.base_dir,
        device=pick_device(loaded.recipe.device),
        report=console.line,
        progress=console.progress,
    )
    try:
        with terminable():
            card = pretrain(loaded.recipe, context)
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command goes on after its last whole epoch") from None
    for name in ("held_out", "nearest_class_mean"):
        told = ", ".join(f"{label} {100 * value:.1f} %" for label, value in card[name].items())
        click.echo(f"{name.replace('_', ' ')}: {told}")
    judged = card["few_shot"]
    click.echo(
        f"few-shot on validation classes: {100 * judged['mean']:.1f} % ({judged['ways']} ways, "
        f"{judged['shots']} shots), epoch {card['epoch']} of {loaded.recipe.epochs}"
    )
    click.echo(f"wrote {loaded.recipe.output} in {card['seconds']:.0f} s")
