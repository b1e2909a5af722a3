"""``metaforge run``."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Run a recipe, or go on with a run.")
@click.argument("words", nargs=-1, metavar="RECIPE [KEY=VALUE]...")
@click.option(
    "--resume",
    metavar="RUN",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Go on with a run that was stopped, from its folder.",
)
@click.option("--quiet", is_flag=True, help="Print no progress and no table.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, nothing else.")
def command(words: tuple[str, ...], resume: Path | None, quiet: bool, as_json: bool) -> None:
    """Run a recipe: a path, or the name of a shipped one.

    KEY=VALUE changes one option, such as condition.steps=100 or kernel.use=laplace. A run that
    is resumed may change evaluate.workers, which changes no result. The results go to standard
    output, the progress to standard error.

    Several processes share a run that torchrun starts: torchrun --nproc-per-node 4 -m metaforge
    run RECIPE. Such a run may be resumed by any number of them.
    """
    from metaforge.cli import torchrun
    from metaforge.cli.text import note_failed_plugins
    from metaforge.place import place
    from metaforge.recipe import load

    with torchrun.told_by_one():
        if resume and words and "=" not in words[0]:
            raise click.UsageError("--resume reads the recipe from the run: give no other")
        if not resume and (not words or "=" in words[0]):
            raise click.UsageError("say which recipe first, such as: metaforge run sp_maml seed=1")
        here = place()
        resolved = None if resume else load(words[0], words[1:])
    first = here is None or here.rank == 0
    if first:
        note_failed_plugins()
    quiet = quiet or as_json
    with torchrun.ranks(here) as shared:
        from metaforge import pipeline

        if resolved is not None:
            results = pipeline.run(resolved, quiet=quiet, **shared)
        elif resume is not None:
            results = pipeline.resume(resume, words, quiet=quiet, **shared)
    if not first:
        return
    if as_json:
        click.echo(json.dumps(results, indent=2))
    elif not quiet:
        from metaforge.report import render_lines

        # The notes stand at the head of what was said, and in the report.
        shown = {**results, "notes": []}
        click.echo("\n".join(render_lines(shown, Path(results["run_dir"]))))
