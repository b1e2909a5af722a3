"""Arrays that are made once and kept in the cache folder. numpy alone."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from metaforge.cache import held
from metaforge.records import keep

#: What numpy and zipfile raise for an archive that is not what was written: a flipped bit may
#: make it one that is encrypted, or compressed in an unknown way (``RuntimeError``), or very large.
DAMAGE = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def cached_array(
    path: Path,
    shape: tuple[int, ...],
    make: Callable[[], np.ndarray],
    report: Callable[[str], None],
) -> np.ndarray:
    """The array [*shape] of an npz file, or ``make()``'s, which is then kept there.

    A damaged file, or one of another shape, is made anew; a folder that cannot be written costs
    the cache alone.
    """
    with held(path) as there:
        if there:
            try:
                return _read(path, shape)
            except DAMAGE:
                report(f"note: {path} is damaged, making it anew")
    array = make()
    file = BytesIO()
    np.savez(file, data=array)
    keep(path, file.getvalue(), report)
    return array


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Whole or not at all: the archive carries a checksum of its content."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        array = archive["data"]
    if array.shape != shape:
        raise ValueError(f"shape {array.shape}, expected {shape}")
    return array
