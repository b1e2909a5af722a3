"""``metaforge eval``."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Evaluate a finished run on other targets.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--split", type=click.Choice(["test", "val"]), help="Default: the run's.")
@click.option("--targets", type=int, metavar="N", help="How many; default: as many as the run.")
@click.option(
    "--first",
    type=int,
    metavar="ID",
    help="The first target; default: 0, on val the first unseen.",
)
@click.option("--quiet", is_flag=True, help="Print no progress and no table.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, nothing else.")
def command(
    run: Path,
    changes: tuple[str, ...],
    split: str | None,
    targets: int | None,
    first: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Evaluate the finished run in the folder RUN on frozen targets, without training.

    KEY=VALUE changes options of evaluate and condition, such as condition.steps=20. What comes of
    it is kept in RUN/evaluations.
    """
    from metaforge.cli.text import note_failed_plugins
    from metaforge.learner.evaluate import evaluate

    note_failed_plugins()
    results = evaluate(
        run, *changes, split=split, targets=targets, first=first, quiet=quiet or as_json
    )
    if as_json:
        click.echo(json.dumps(results, indent=2))
    elif not quiet:
        from metaforge.report import render_lines

        shown = {**results, "notes": []}  # they were told
        click.echo("\n".join(render_lines(shown, Path(results["run_dir"]))))
