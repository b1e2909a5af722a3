"""Arrays that are made once and kept in the cache folder. numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from metaforge.cache import held
from metaforge.errors import DataError
from metaforge.npy_files import BROKEN, read_member
from metaforge.records import keep


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
            except (*BROKEN, DataError):
                report(f"note: {path} is damaged, making it anew")
    array = make()
    file = BytesIO()
    np.savez(file, data=array)
    keep(path, file.getvalue(), report)
    return array


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Whole or not at all: the archive carries a checksum of its content."""
    array = read_member(path, "data")
    if array.shape != shape:
        raise ValueError(f"shape {array.shape}, expected {shape}")
    return array
