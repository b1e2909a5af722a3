"""The doors: whatever takes files or texts from outside, each with valid inputs to change.

An input is a folder's files by relative name. What a door raises on it must be a
``MetaforgeError``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from metaforge.components import Context
from metaforge.errors import DataError, MetaforgeError, RecipeError
from metaforge.pickle_arrays import BadPickle
from metaforge.recipe import load
from metaforge.recipe.find import find_recipe
from tests.comparison.folders import write_run
from tests.fuzz import mutate
from tests.plugins.leo_embeddings_files import pickled

Files = dict[str, bytes]
Mutate = Callable[[bytes, Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Door:
    """``seeds(folder)`` gives valid inputs, for which ``folder`` is empty and may be used;
    ``enter`` reads the input in a folder; ``share`` is of all inputs; ``reads_anywhere``: a path
    in the input is the user's word. ``how`` changes files by how their names end."""

    name: str
    seeds: Callable[[Path], list[Files]]
    enter: Callable[[Path], object]
    how: dict[str, Mutate]
    share: float
    reads_anywhere: bool = False
    slow: float = 4.0

    def mutated(self, seeds: Sequence[Files], rng: Random) -> Files:
        """One of the seeds with a file changed, seldom two."""
        files = dict(rng.choice(seeds))
        names = [name for name in files if self._how(name)]
        for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2)))):
            how = self._how(name)
            assert how is not None
            others = [other[name] for other in seeds if name in other]
            files[name] = how(files[name], rng, others)
        return files

    def _how(self, name: str) -> Mutate | None:
        return next((how for end, how in self.how.items() if name.endswith(end)), None)


def _recipes(folder: Path) -> list[Files]:
    names = ("sp_ls", "sp_maml_sinusoids", "sp_ls_mixture", "sp_maml_conv4")
    texts = [find_recipe(name).read_bytes() for name in names]
    aliased = (
        b"name: a\ndata: {use: sinusoids, shots: &n 5, queries: *n}\ninner: {use: maml}\n"
        b"select:\n  grid: {weighting.lambda: [1e-4, 1e-2]}\n  targets: 9\n"
    )
    complete = load("sp_maml_sinusoids", check=False).to_yaml().encode()
    return [{"recipe.yaml": text} for text in (*texts, aliased, complete)]


def _recipe(folder: Path) -> None:
    _loaded(folder / "recipe.yaml")


def _loaded(source: Path | str, overrides: Sequence[str] = ()) -> None:
    """What a component's check raises, the recipe tells as the plugin's fault: it is ours."""
    try:
        load(source, overrides)
    except RecipeError as error:
        for problem in error.problems:
            assert not ("failed: " in problem.message and problem.code == 4), str(problem)
        raise


_OVERRIDES = (
    *("condition.steps=50", "weighting.use=uniform", "kernel={use: laplace}", "name=a"),
    *("select.grid.weighting.lambda=[1, 2]", "weighting.lambda=1e-4", "seed=3"),
    *("data.shots=2", "trackers=[{use: csv}]", "evaluate.controls=[random_m]", "output=runs"),
    *("weighting.lambda=validate", "data={use: sinusoids, shots: 2}", "bank.size=900"),
)


def _overrides(folder: Path) -> list[Files]:
    return [{"overrides.txt": f"{text}\n{_OVERRIDES[0]}".encode()} for text in _OVERRIDES]


def _override(folder: Path) -> None:
    text = (folder / "overrides.txt").read_bytes().decode(errors="surrogateescape")
    _loaded("sp_ls", text.split("\n"))


_ROWS, _CLASSES = 60, 10


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def _npz_files(folder: Path) -> list[Files]:
    y, group = np.arange(_ROWS) % _CLASSES, np.arange(_CLASSES) % 2
    features, images = _numbers(_ROWS, 8), (_numbers(_ROWS, 6, 6) > 0).astype(np.uint8)
    words = np.array([f"class {one}" for one in y])
    return [
        {"data.npz": _npz(X=features, y=y, group=group)},
        {"data.npz": _npz(X=features.astype("f4"), y=words, group=group)},
        {"data.npz": _npz(X=images, y=y.astype("f8"), group=group)},
    ]


def _npz_read(folder: Path) -> None:
    from metaforge_arrays import layout, source
    from metaforge_arrays.options import ArraysOptions

    path = folder / "data.npz"
    context = Context(cache_dir=folder / "cache")
    refused = []
    ways: tuple[dict[str, Any], ...] = ({}, {"group": "group", "within": 0.5}, {"storage": "disk"})
    for more in ways:
        options = ArraysOptions(path=path, shots=1, queries=1, ways=2, **more)
        refused += layout.check(options, context)[:1]
        with suppress(DataError):
            layout.facts(options, context)
        with suppress(DataError):
            source.load(options, context).batch("train", [0, 1])
    if len(refused) == len(ways):
        raise DataError(refused[0])


def _pickles(folder: Path) -> list[Files]:
    values, labels = _numbers(12, 3).astype("f4"), list(range(12))
    keys = [f"train-c{row % 3}-{row}" for row in range(12)]
    entries = {"embeddings": values, "labels": labels, "keys": keys}
    python3 = [pickle.dumps(entries, protocol) for protocol in (2, 3, 4, 5)]
    return [{"data.pkl": text} for text in (pickled(entries), *python3)]


def _pickle(folder: Path) -> None:
    from metaforge.pickles import read_pickle_file
    from metaforge_leo_embeddings.tables import read_table

    with suppress(DataError):
        read_table(folder / "data.pkl")
    try:
        read_pickle_file(folder / "data.pkl")
    except BadPickle as error:  # whose readers put their place before it
        raise DataError(str(error)) from error


def _tensor_files(folder: Path) -> list[Files]:
    import torch

    from metaforge.records import tensor_bytes

    meta = {"steps": 60, "best_step": 40, "best_score": 0.5, "skipped": 0}
    state = {**meta, "step": 3, "curve": [{"step": 1.0, "loss": 0.25}]}
    tensors = {"now/w": torch.ones(3, 4), "best/w": torch.zeros(5, dtype=torch.int64)}
    return [{"a.safetensors": tensor_bytes(tensors, value)} for value in (meta, state, None)]


def _tensors(folder: Path) -> None:
    from metaforge import run_files
    from metaforge.records import load_tensors

    for shape in (run_files.MetaTrained, run_files.TrainingState, None):
        with suppress(DataError):
            load_tensors(folder / "a.safetensors", shape)
    load_tensors(folder / "a.safetensors")


def _run_folders(folder: Path) -> list[Files]:
    return [
        _files_of(write_run(folder / "a", gain=0.1)),
        _files_of(write_run(folder / "b", "seed=1", gain=0.2)),
        _files_of(write_run(folder / "c", "weighting.use=uniform")),
    ]


def _files_of(folder: Path) -> Files:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _run_folder(folder: Path) -> None:
    from metaforge.comparison import compare_runs
    from metaforge.environment import missing
    from metaforge.report import render_text

    other = write_run(folder / "other", "seed=1", gain=0.2)
    for read in (lambda: render_text(folder), lambda: missing(folder)):
        with suppress(MetaforgeError):
            read()
    compare_runs([folder, other], out=folder / "table", force=True)


def _images(folder: Path) -> list[Files]:
    pixels = (_numbers(9, 7, 3) * 60 + 128).clip(0, 255).astype(np.uint8)
    found: list[Files] = []
    for ending, options in (
        *(("png", {}), ("jpg", {}), ("gif", {}), ("bmp", {}), ("tif", {}), ("webp", {})),
        *(("png", {"grey": True}), ("tif", {"compression": "tiff_lzw"}), ("ppm", {}), ("jp2", {})),
    ):
        image = Image.fromarray(pixels)
        image = image.convert("L") if options.pop("grey", False) else image
        file = io.BytesIO()
        exif = image.getexif()
        exif[0x0112] = 6
        more = {"exif": exif} if ending in ("jpg", "png", "webp") else {}
        forms = {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}
        image.save(file, forms.get(ending, ending.upper()), **options, **more)
        found.append({f"a/x.{ending}": file.getvalue()})
    return found


def _image(folder: Path) -> None:
    from metaforge.image_files import ImageForm, list_images, read_images

    listing = list_images(folder)
    context = Context(cache_dir=folder / "cache")
    with suppress(DataError):
        read_images(folder, listing.files, ImageForm(3, 8, 8), context)
    read_images(folder, listing.files, None, context)


def _resumed_runs(folder: Path) -> list[Files]:
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


def _resume(folder: Path) -> None:
    from metaforge import environment, pipeline

    with patch.object(environment, "_git_commit", return_value=None):  # asks git
        pipeline.resume(folder, quiet=True)


def _caches(folder: Path) -> list[Files]:
    return [{"a.npz": _npz(data=_numbers(5, 4))}]


def _cache(folder: Path) -> None:
    from metaforge.cached_arrays import cached_array

    path = folder / "a.npz"
    array = cached_array(path, (5, 4), lambda: np.zeros((5, 4)), lambda line: None)
    assert array.shape == (5, 4)


_JSON: dict[str, Mutate] = {".json": mutate.mutated_json, ".jsonl": mutate.mutated_json}

DOORS = (
    Door("recipe", _recipes, _recipe, {".yaml": mutate.mutated_text}, 0.08, True),
    Door("override", _overrides, _override, {".txt": mutate.mutated_text}, 0.08, True),
    Door("npz", _npz_files, _npz_read, {".npz": mutate.mutated_npz}, 0.12),
    Door("pickle", _pickles, _pickle, {".pkl": mutate.mutated}, 0.25),
    Door("tensors", _tensor_files, _tensors, {".safetensors": mutate.mutated_tensors}, 0.16),
    Door("run_folder", _run_folders, _run_folder, {**_JSON, ".yaml": mutate.mutated_text}, 0.05),
    Door(
        "resume",
        _resumed_runs,
        _resume,
        {**_JSON, ".safetensors": mutate.mutated_tensors},
        0.01,
        slow=30.0,
    ),
    Door("image", _images, _image, {".png": mutate.mutated_png, "": mutate.mutated}, 0.19),
    Door("cache", _caches, _cache, {".npz": mutate.mutated_npz}, 0.06),
)
BY_NAME = {door.name: door for door in DOORS}
