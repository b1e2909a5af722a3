"""``metaforge export``."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Export a model to TorchScript or ONNX.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--to", "form", type=click.Choice(["torchscript", "onnx"]), required=True, help="The format."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(model: Path, form: str, out: Path, force: bool) -> None:
    """Write the frozen predictor of the adapted model in the folder MODEL to a file.

    It maps what the learner sees, [n, *x], to scores of the classes; what is done to raw samples
    before is told. The file is run, and its outputs compared with the model's, before it is kept.
    """
    from metaforge.adapted import load
    from metaforge.frozen import export

    found = load(model, device="cpu")
    export(found, out, form, force=force)  # type: ignore[arg-type]
    click.echo(f"{out}: {form}, input {list(found.support.support_x.shape[2:])} a sample")
    if found.classes is not None:
        click.echo(f"outputs: scores of {', '.join(map(str, found.classes))}")
    click.echo(f"done to raw samples before: {json.dumps(found.preprocess.facts())}")
