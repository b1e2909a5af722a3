"""An npz file of features of images: what ``metaforge embed`` writes, and goes on with.

The features are computed in parts, each kept in a hidden folder beside the file under the digest
of its images and of what makes features of them. Work that was stopped takes up whole parts; a
part whose images or backbone have changed is made anew. The file appears when it is whole, and the
parts go.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embed_inputs import Inputs
from metaforge.embedding import block_size, feature_blocks, identity, refuse_not_finite
from metaforge.errors import DataError
from metaforge.image_files import ImageForm
from metaforge.records import whole_file

#: Images of a part, about: so much work is lost at most.
_PART = 1024


@dataclass(frozen=True)
class Part:
    """Some images in a row, and the name of the file of their features."""

    rows: range
    name: str


def write_features(
    inputs: Inputs,
    backbone: Backbone,
    choice: Mapping[str, Any],
    path: Path,
    context: Context,
    *,
    batch: int | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Compute the features that are not there yet, and write the file; what was done, for JSON.

    ``choice`` is ``{"use": name, **options}`` of the backbone, ``batch`` the images of a forward
    pass. A file that holds these features already is left as it is. Raises ``DataError`` for a
    file that holds something else, unless ``force``, for images that cannot be read, and for
    features that are not finite.
    """
    start = time.perf_counter()
    each = batch or block_size(inputs.shape, backbone.images, context.device)
    parts = parts_of(inputs, backbone, each)
    digest = _digest(repr([part.name for part in parts]))
    told = {
        "file": str(path),
        "images": inputs.count,
        "features": backbone.width,
        "columns": sorted(inputs.columns),
        "backbone": dict(choice),
        "fingerprint": backbone.fingerprint,
    }
    if not force and _holds(path, digest):
        return told | {"computed": 0, "seconds": 0.0, "note": "the file holds these features"}
    folder = path.with_name(f".{path.name}.parts")
    computed = _compute(inputs, backbone, parts, folder, each, context)
    features = np.concatenate([np.load(folder / part.name) for part in parts])
    origin = {
        "backbone": dict(choice),
        "fingerprint": backbone.fingerprint,
        "images": asdict(ImageForm(*inputs.shape)),
        "inputs": digest,
    }
    with whole_file(path) as file:
        entry = np.array(json.dumps(origin))
        np.savez(file, X=features, **inputs.columns, metaforge=entry)  # type: ignore[arg-type]
    shutil.rmtree(folder, ignore_errors=True)
    return told | {"computed": computed, "seconds": round(time.perf_counter() - start, 2)}


def parts_of(inputs: Inputs, backbone: Backbone, each: int) -> list[Part]:
    """The parts, of whole blocks of ``each`` images, but for the last."""
    size = each * max(1, _PART // each)
    made_by = f"{identity(backbone)} {each}"
    return [
        Part(rows, f"{rows.start}-{_digest(made_by + inputs.digest(rows))}.npy")
        for rows in (
            range(first, min(first + size, inputs.count)) for first in range(0, inputs.count, size)
        )
    ]


def _compute(
    inputs: Inputs,
    backbone: Backbone,
    parts: Sequence[Part],
    folder: Path,
    each: int,
    context: Context,
) -> int:
    """Every part that is not in the folder; how many images that are."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder, parts)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror}") from error
    missing = [part for part in parts if not (folder / part.name).is_file()]
    left = sum(len(part.rows) for part in missing)
    if left < inputs.count:
        context.report(f"going on: {inputs.count - left:,} of {inputs.count:,} images are done")
    with context.progress("computing features", inputs.count, inputs.count - left) as advance:
        images = inputs.read([part.rows for part in missing])
        for part, some in zip(missing, _to_their_end(images), strict=True):
            found = []
            for block in _blocks(some, backbone, each, context.device):
                found.append(block)
                advance(len(block))
            features = torch.cat(found)
            refuse_not_finite(features)
            with whole_file(folder / part.name) as file:
                np.save(file, features.numpy())
    return left


def _to_their_end(images: Iterator[Tensor]) -> Iterator[Tensor]:
    """One ahead, so that images that cannot be read are told before the last part is computed."""
    held = next(images, None)
    while held is not None:
        ahead = next(images, None)
        yield held
        held = ahead


def _blocks(some: Tensor, backbone: Backbone, each: int, device: str) -> Iterator[Tensor]:
    return feature_blocks(
        lambda start, stop: some[start:stop], len(some), backbone, device, each=each
    )


def _clear(folder: Path, parts: Sequence[Part]) -> None:
    """Parts of other images, or of another backbone, go."""
    known = {part.name for part in parts}
    for file in folder.iterdir():
        if file.name not in known:
            file.unlink()


def _holds(path: Path, digest: str) -> bool:
    """Whether the file is there and has these features. Raises ``DataError`` for another file."""
    if not path.exists():
        return False
    damage = (ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile)
    with suppress(OSError, *damage), np.load(path, allow_pickle=False) as archive:
        if json.loads(str(archive["metaforge"][()]))["inputs"] == digest:
            return True
    raise DataError(
        f"{path}: is there already, and does not hold these features: give another --out, or "
        "--force to overwrite it"
    )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
