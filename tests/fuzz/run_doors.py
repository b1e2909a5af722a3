"""Folders of runs, bundles and models: valid ones, and what reads them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np

from metaforge.errors import MetaforgeError
from metaforge.recipe import load
from tests.comparison.folders import write_run
from tests.fuzz.door import Files


def run_folders(folder: Path) -> list[Files]:
    return [
        _files_of(write_run(folder / "a", gain=0.1)),
        _files_of(write_run(folder / "b", "seed=1", gain=0.2)),
        _files_of(write_run(folder / "c", "weighting.use=uniform")),
    ]


def _files_of(folder: Path) -> Files:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run_folder(folder: Path) -> None:
    from metaforge.comparison import compare_runs
    from metaforge.environment import missing
    from metaforge.report import html, render_text

    other = write_run(folder / "other", "seed=1", gain=0.2)
    for read in (lambda: render_text(folder), lambda: missing(folder)):
        with suppress(MetaforgeError):
            read()
    with suppress(MetaforgeError):
        page = html.write_run(folder, to=folder / "page.html").read_text()
        assert not any(sign in page for sign in ("<script>alert", "<img src=x"))
    compare_runs([folder, other], out=folder / "table", force=True)


def resumed_runs(folder: Path) -> list[Files]:
    """Runs that are finished, with a selection and without; one that was stopped in phase 1."""
    from metaforge import pipeline

    tiny = {
        "name": "tiny",
        "data": {"use": "sinusoids", "shots": 2, "queries": 2},
        "inner": {"use": "maml", "model": {"use": "mlp", "hidden": [4]}, "steps": 1, "lr": 0.01},
        "bank": {"size": 20},
        "meta_train": {"steps": 6, "batch": 2, "validate_every": 3, "validation_targets": 2},
        "condition": {"steps": 2, "batch": 2, "top_m": 5},
        "evaluate": {"targets": 3, "workers": 1},
        "output": str(folder / "runs"),
    }
    found = pipeline.run(load(tiny), quiet=True)
    done = _files_of(Path(found["run_dir"]))
    gone = {"results.json", "targets.jsonl", "timings.jsonl", "artifacts/theta_hat.safetensors"}
    stopped = {name: content for name, content in done.items() if name not in gone}
    grid = {"grid": {"weighting.lambda": [1e-4, 1e-2]}, "targets": 2}
    found = pipeline.run(load({**tiny, "select": grid}), quiet=True)
    return [done, stopped, _files_of(Path(found["run_dir"]))]


def resume(folder: Path) -> None:
    from metaforge import environment, pipeline

    with patch.object(environment, "_git_commit", return_value=None):  # asks git
        pipeline.resume(folder, quiet=True)


def learners(folder: Path) -> list[Files]:
    """A bundle, and a model that was adapted."""
    import metaforge
    from metaforge.learner import bundles
    from tests.learner.runs import recipe

    tiny = recipe(None, "maml") | {"output": str(folder / "runs"), "bank": {"size": 8}}
    learner = metaforge.load(metaforge.run(tiny, quiet=True)["run_dir"])
    bundles.write(learner, folder / "bundle")
    x = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    learner.adapt(x, x, steps=1).save(folder / "model")
    return [_files_of(folder / "bundle"), _files_of(folder / "model")]


def learner(folder: Path) -> None:
    import metaforge

    metaforge.load(folder, device="cpu")
