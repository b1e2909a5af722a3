"""Images as bytes, in memory or on disk; what takes long to read is kept in the cache folder.

A kept array is an npy file, and beside it a note of its digest, which is written last: without the
note the array is made anew. Both are named by what the images are made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.kept_images import write_images
from metaforge.records import write_atomic
from metaforge.storage import DiskRows, numbers_of
from metaforge_fewshot_images.content import Content

#: Part of the name: raised when the same files come to other bytes.
_MAKING = 1


def in_memory(content: Content, context: Context) -> tuple[np.ndarray, str]:
    """uint8 [n, c, h, w], and their digest. A cache folder that cannot be written costs the
    cache alone. Raises ``DataError`` for images that cannot be read."""
    path = _place(content, context)
    if content.slow and (known := _digest_of(path, content)):
        images = np.load(path)
        if hashlib.blake2b(images.data, digest_size=16).hexdigest() == known:
            return images, known
        context.report(f"note: {path} is damaged, making it anew")
    images = np.empty(_shape(content), np.uint8)
    digest = hashlib.blake2b(digest_size=16)
    first = 0
    for block in content.blocks(context):
        images[first : first + len(block)] = block
        digest.update(np.ascontiguousarray(block).data)
        first += len(block)
    if content.slow:
        try:
            _write(path, [images], _shape(content))
        except DataError as error:
            context.report(f"note: the images are not kept for the next run: {error}")
    return images, digest.hexdigest()


def on_disk(content: Content, context: Context) -> DiskRows:
    """The same, of which only what is asked for is read. Raises ``DataError`` too where the cache
    folder cannot be written."""
    path = _place(content, context)
    if not _digest_of(path, content):
        _write(path, content.blocks(context), _shape(content))
    return DiskRows(path, _digest_of(path, content))


def _shape(content: Content) -> tuple[int, ...]:
    return len(content), *content.form.shape


def _place(content: Content, context: Context) -> Path:
    key = repr((_MAKING, content.identity))
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return context.cache_dir / "fewshot_images" / f"{name}.npy"


def _digest_of(path: Path, content: Content) -> str:
    """Of a kept array that is whole; empty for none."""
    try:
        header, _ = numbers_of(path)
        found = json.loads(path.with_suffix(".json").read_text())["digest"]
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return ""
    whole = header.shape == _shape(content) and header.dtype == np.uint8
    return found if whole and isinstance(found, str) else ""


def _write(path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, ...]) -> None:
    digest = write_images(path, shape, blocks)
    write_atomic(path.with_suffix(".json"), json.dumps({"digest": digest}).encode())
