"""Images written to the cache folder as an npy file whose rows can be read alone. numpy alone."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.errors import DataError
from metaforge.records import whole_file


def write_images(path: Path, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> str:
    """Write uint8 [n, c, h, w], whole or not at all, and give the digest of the bytes.

    ``blocks`` give the rows in order, some at a time. Raises ``DataError`` for a folder that
    cannot be made or has no room, before any row is asked for.
    """
    _make_folder(path.parent, prod(shape))
    digest = hashlib.blake2b(digest_size=16)
    header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            data = np.ascontiguousarray(block).data
            digest.update(data)
            file.write(data)
    return digest.hexdigest()


def _make_folder(folder: Path, size: int) -> None:
    advice = "set METAFORGE_CACHE to a folder that can be written, with room"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(
            f"images are kept in {folder}, which cannot be made ({error.strerror}): {advice}"
        ) from error
    if free < size:
        raise DataError(
            f"images are kept in {folder}, {size / 2**20:,.0f} MiB, which has "
            f"{free / 2**20:,.0f} MiB left: {advice}, or a smaller size"
        )
