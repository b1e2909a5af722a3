"""``metaforge predict``."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Predict samples by an adapted model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("inputs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The table; default: printed.")
@click.option("--label", metavar="COLUMN", help="A table's column, or file's array, of labels.")
@click.option("--device", metavar="NAME", help="cpu, cuda, ...")
@click.option("--json", "as_json", is_flag=True, help="Print all as JSON, nothing else.")
@click.option("--force", is_flag=True, help="Replace a table that is there.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def command(
    model: Path,
    inputs: tuple[Path, ...],
    out: Path | None,
    label: str | None,
    device: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Predict INPUTS by the adapted model in the folder MODEL.

    An input is an image, a folder of images (what lies in folders of classes is labelled), a table
    or an npz file of X. The table has a row for each sample: its name, the predicted class and
    the score of each class (of regression: the values). Where every sample has a label, it tells
    how many predictions are right.
    """
    from metaforge.adapted import load
    from metaforge.cli.learners import context_of
    from metaforge.errors import DataError
    from metaforge.predictions import is_table, predict, told
    from metaforge.records import write_atomic
    from metaforge.samples import read_all

    if out is not None and out.exists():
        if not force:
            raise DataError(f"{out}: exists; nothing is overwritten without --force")
        if not is_table(out):
            raise DataError(f"{out}: no table of predictions: --force replaces those alone")
    context = context_of(quiet or as_json)
    found = load(model, context=context, device=device)
    if found.transductive:
        context.report("note: transductive: what is predicted of a sample depends on the others")
    samples = read_all(inputs, found.preprocess, context, label)
    for line in (remark for one in samples for remark in one.remarks):
        context.report(f"note: {line}")
    predictions = predict(found, samples)
    right = predictions.right()
    if out is not None:
        write_atomic(out, predictions.csv().encode())
    if as_json:
        click.echo(json.dumps({"predictions": predictions.rows(), "right": right}, indent=2))
        return
    if out is None:
        click.echo(predictions.csv(), nl=False)
    for line in told(right) if right is not None else []:
        click.echo(line, err=out is None)
    if out is not None:
        click.echo(f"{out}: {len(predictions.names)} predictions")
