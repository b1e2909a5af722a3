"""``metaforge adapt``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click


@click.command(short_help="Move a trained learner to your own samples.")
@click.argument("learner", metavar="RUN")
@click.option(
    "--support",
    type=click.Path(path_type=Path),
    required=True,
    help="Labelled samples: a folder of class folders of images, a table, or an npz of X and y.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The model's folder.")
@click.option("--label", metavar="COLUMN", help="A table's column, or file's array, of labels.")
@click.option("--steps", type=int, metavar="J", help="Steps; default: the run's. 0: none.")
@click.option("--source", metavar="NAME", help="Which source of a mixture the samples are like.")
@click.option("--device", metavar="NAME", help="cpu, cuda, ...; default: the recipe's.")
@click.option("--force", is_flag=True, help="Replace a model that is there.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(
    learner: str,
    support: Path,
    out: Path,
    label: str | None,
    steps: int | None,
    source: str | None,
    device: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Condition a learner on labelled samples, and save the adapted model.

    RUN is the folder of a finished run, of a bundle, or the name of a shipped bundle (glyphs).
    """
    from metaforge.adapted import OWN_FILES
    from metaforge.cli.learners import opened
    from metaforge.learner.raw import preprocess_of
    from metaforge.records import refuse_taken
    from metaforge.samples import support as read_support

    refuse_taken(out, force=force, replaces=OWN_FILES)
    found, context = opened(learner, device, quiet)
    preprocess = preprocess_of(found.parts.source, source)
    assert preprocess is not None
    samples = read_support(support, preprocess, context, label)
    for line in samples.remarks:
        context.report(f"note: {line}")
    with samples.named():
        model = found.adapt(samples.values, samples.labels, steps, source=source)
    if samples.columns is not None:  # further tables are read by these names
        model = replace(model, preprocess=replace(model.preprocess, columns=samples.columns))
    model.save(out, force=force)
    origin = model.origin
    task = f"{len(samples.names)} samples"
    if model.classes is not None:
        task += f" of {len(model.classes)} classes"
    click.echo(
        f"{out}: adapted to {task}, {origin['steps']} steps on {origin['recalled']} recalled bank "
        f"tasks; predict with it: metaforge predict {out} INPUT --out predictions.csv"
    )
