"""``metaforge bundle``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Bundle a run for use without its data.")
@click.argument("run")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The bundle's folder.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(run: str, out: Path, force: bool, quiet: bool) -> None:
    """Write what conditioning needs of the finished run in the folder RUN: theta_hat, options, and
    the training classes' samples with how the bank's tasks are drawn of them.

    A bundle in RUN/bundle serves the run from then on.
    """
    from metaforge.cli.learners import opened
    from metaforge.learner import bundles
    from metaforge.records import refuse_taken

    refuse_taken(out, force=force, replaces=bundles.OWN_FILES)
    learner, context = opened(run, None, quiet)
    context.report(f"bundle: about {bundles.estimate(learner) / 1e6:.1f} MB")
    written = bundles.write(learner, out, force=force)
    click.echo(
        f"{out}: {written['bytes'] / 1e6:.1f} MB; licence of the data in it: "
        f"{learner.parts.source.licence}"
    )
