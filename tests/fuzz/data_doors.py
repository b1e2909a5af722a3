"""Files of data and of weights: valid ones, and what reads them."""

from __future__ import annotations

import io
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.pickle_arrays import BadPickle
from tests.fuzz.door import Files
from tests.plugins.leo_embeddings_files import pickled

_ROWS, _CLASSES = 60, 10


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def npz_files(folder: Path) -> list[Files]:
    y, group = np.arange(_ROWS) % _CLASSES, np.arange(_CLASSES) % 2
    features, images = _numbers(_ROWS, 8), (_numbers(_ROWS, 6, 6) > 0).astype(np.uint8)
    words = np.array([f"class {one}" for one in y])
    return [
        {"data.npz": _npz(X=features, y=y, group=group)},
        {"data.npz": _npz(X=features.astype("f4"), y=words, group=group)},
        {"data.npz": _npz(X=images, y=y.astype("f8"), group=group)},
    ]


def npz_read(folder: Path) -> None:
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


def pickles(folder: Path) -> list[Files]:
    values, labels = _numbers(12, 3).astype("f4"), list(range(12))
    keys = [f"train-c{row % 3}-{row}" for row in range(12)]
    entries = {"embeddings": values, "labels": labels, "keys": keys}
    python3 = [pickle.dumps(entries, protocol) for protocol in (2, 3, 4, 5)]
    return [{"data.pkl": text} for text in (pickled(entries), *python3)]


def pickle_read(folder: Path) -> None:
    from metaforge.pickles import read_pickle_file
    from metaforge_leo_embeddings.tables import read_table

    with suppress(DataError):
        read_table(folder / "data.pkl")
    try:
        read_pickle_file(folder / "data.pkl")
    except BadPickle as error:  # whose readers put their place before it
        raise DataError(str(error)) from error


def tensor_files(folder: Path) -> list[Files]:
    import torch

    from metaforge.records import tensor_bytes

    meta = {"steps": 60, "best_step": 40, "best_score": 0.5, "skipped": 0}
    state = {**meta, "step": 3, "curve": [{"step": 1.0, "loss": 0.25}]}
    tensors = {"now/w": torch.ones(3, 4), "best/w": torch.zeros(5, dtype=torch.int64)}
    return [{"a.safetensors": tensor_bytes(tensors, value)} for value in (meta, state, None)]


def tensors(folder: Path) -> None:
    from metaforge import run_files
    from metaforge.records import load_tensors

    for shape in (run_files.MetaTrained, run_files.TrainingState, None):
        with suppress(DataError):
            load_tensors(folder / "a.safetensors", shape)
    load_tensors(folder / "a.safetensors")


def images(folder: Path) -> list[Files]:
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


def image(folder: Path) -> None:
    from metaforge.image_files import ImageForm, list_images, read_images

    listing = list_images(folder)
    context = Context(cache_dir=folder / "cache")
    with suppress(DataError):
        read_images(folder, listing.files, ImageForm(3, 8, 8), context)
    read_images(folder, listing.files, None, context)


def caches(folder: Path) -> list[Files]:
    return [{"a.npz": _npz(data=_numbers(5, 4))}]


def cache(folder: Path) -> None:
    from metaforge.cached_arrays import cached_array

    path = folder / "a.npz"
    array = cached_array(path, (5, 4), lambda: np.zeros((5, 4)), lambda line: None)
    assert array.shape == (5, 4)


def tables(folder: Path) -> list[Files]:
    rows = [f"{value:.3f},{row % 3},name {row},'a' \"b\"" for row, value in enumerate(_numbers(9))]
    text = "\n".join(["x,y,label,free", *rows]).replace("'", "")
    quoted = 'a;"b;c";d\n1;"x\ny";2.5\n2;"z";-3e-2\n'
    made = [{"t.csv": text.encode()}, {"t.csv": quoted.encode()}]
    return [*made, {"t.tsv": text.replace(",", "\t").encode()}, {"t.csv": text.encode("utf-8-sig")}]


def table(folder: Path) -> None:
    from metaforge.table_files import read_table

    (path,) = folder.iterdir()
    with suppress(DataError):
        read_table(path, text=("label", "b;c"))
    read_table(path)


def weights(folder: Path) -> list[Files]:
    import torch

    found = []
    state = {"a.weight": torch.ones(3, 4), "b": torch.zeros(2, dtype=torch.float16)}
    for value, zipped in ((state, True), ({"state_dict": state}, True), (state, False)):
        file = io.BytesIO()
        torch.save(value, file, _use_new_zipfile_serialization=zipped)
        found.append({"w.pth": file.getvalue()})
    return found


def weight(folder: Path) -> None:
    from metaforge_pretrained.base import read_weights

    read_weights(folder / "w.pth", "door")
