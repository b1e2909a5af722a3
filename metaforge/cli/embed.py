"""``metaforge embed``."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Make features of images by a backbone.")
@click.argument("data")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--backbone", required=True, metavar="NAME", help="What makes features of images.")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The npz file to write.",
)
@click.option("--batch", type=click.IntRange(1), help="Images of a forward pass.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1.")
@click.option("--force", is_flag=True, help="Overwrite FILE, whatever it holds.")
@click.option("--quiet", is_flag=True, help="Print no progress and no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, nothing else.")
def command(
    data: str,
    overrides: tuple[str, ...],
    backbone: str,
    out: Path,
    batch: int | None,
    device: str,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make features of images: an npz file for the data set arrays.

    DATA is a folder of images (CLASS/*, SPLIT/CLASS/* or images alone), an npz file or folder of
    npy files with images X (and labels y), or a recipe or data set of images. KEY=VALUE are the
    backbone's options, such as weights=FILE; data.KEY=VALUE those of a recipe's data.

    A command that was stopped goes on where it was. FILE appears when it is whole.
    """
    from metaforge.embed_request import read

    request = read(data, overrides, backbone, out, device)
    from metaforge.components import Context
    from metaforge.console import Console
    from metaforge.embed_request import answer
    from metaforge.environment import pick_device, prepare
    from metaforge.errors import Interrupted
    from metaforge.stops import terminable

    console = Console(quiet=quiet or as_json)
    prepare(None)
    context = Context(device=pick_device(device), report=console.line, progress=console.progress)
    try:
        with terminable():
            done = answer(request, context, batch=batch, force=force)
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command goes on from here") from None
    if as_json:
        click.echo(json.dumps(done, indent=2))
    elif not quiet:
        rate = f", {done['computed'] / done['seconds']:.0f}/s" if done["computed"] else ""
        note = f" ({done['note']})" if "note" in done else ""
        click.echo(
            f"{done['images']:,} images, {done['features']} features each, computed "
            f"{done['computed']:,} in {done['seconds']:.1f} s{rate}{note}"
        )
        click.echo(f"with {', '.join(done['columns']) or 'no labels'}: {out}")
