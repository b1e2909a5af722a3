"""Class data that stay on disk: of an npy file only the rows that tasks ask for are read."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.cache import hold
from metaforge.errors import DataError
from metaforge.npy_files import Header, read_header

#: Bytes read at a time where a file is read from end to end.
_READ = 1 << 22


def numbers_of(path: Path) -> tuple[Header, int]:
    """The header and where the numbers start. Raises ``DataError`` for a file whose rows cannot
    be read alone: not whole, of Python objects, or with its rows scattered (Fortran order)."""
    try:
        with path.open("rb") as file:
            header, start = read_header(file), file.tell()
        size = path.stat().st_size - start
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no npy file that can be read ({error})") from error
    needed = header.nbytes
    if header.dtype.hasobject:
        raise DataError(f"{path}: holds Python objects, which are not read; save numbers")
    if header.fortran and len(header.shape) > 1:
        raise DataError(
            f"{path}: its rows are scattered (Fortran order), so that none can be read alone: "
            "save numpy.ascontiguousarray of it"
        )
    if size < needed:
        raise DataError(
            f"{path}: {size} bytes of numbers, expected {needed} for {list(header.shape)} of "
            f"{header.dtype}: the file is cut short, copy it again"
        )
    return header, start


def blocks(path: Path) -> Iterator[np.ndarray]:
    """The rows from first to last, some at a time."""
    header, start = numbers_of(path)
    row = prod(header.shape[1:])
    each = max(1, _READ // max(1, row * header.dtype.itemsize))
    with path.open("rb") as file:
        file.seek(start)
        for first in range(0, header.shape[0], each):
            n = min(each, header.shape[0] - first)
            yield np.fromfile(file, header.dtype, n * row).reshape(n, *header.shape[1:])


class DiskRows:
    """The rows of an npy file as samples [n, *x] that are never all in memory.

    path    the file; it must not change while it is in use, which its time of change tells
    digest  of its numbers: what tells one content from another
    decode  makes samples [k, *x] of rows as they are on disk, of none too

    Rows are read by their place, not mapped: of a mapped file the system holds what is around
    each row too, a hundred times as much. It is safe to fork.
    Raises ``DataError`` as ``numbers_of`` does, and where the file has changed since ``changed``,
    the time of change that another process found.
    """

    def __init__(
        self,
        path: Path,
        digest: str,
        decode: Callable[[np.ndarray], np.ndarray] | None = None,
        changed: int | None = None,
    ):
        self.path, self.digest, self._decode = path, digest, decode
        header, self._start = numbers_of(path)
        self._row = header.shape[1:]
        self._dtype = header.dtype
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._file)
        hold(self._file)
        self._changed = os.fstat(self._file).st_mtime_ns if changed is None else changed
        self._refuse_changed()
        sample = self._decoded(np.empty((0, *self._row), self._dtype))
        self.shape = (header.shape[0], *sample.shape[1:])
        self.dtype = sample.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """[k, *x]: the samples of rows [k], each from 0 to n-1, in memory of their own.

        Raises ``DataError`` if the file has changed, or become shorter.
        """
        self._refuse_changed()
        found = np.empty((len(rows), *self._row), self._dtype)
        size = prod(self._row) * self._dtype.itemsize
        into = found.reshape(-1).view(np.uint8).data
        for place, row in enumerate(rows.tolist()):
            self._read(into[place * size : (place + 1) * size], self._start + row * size)
        return self._decoded(found)

    def _refuse_changed(self) -> None:
        if os.fstat(self._file).st_mtime_ns != self._changed:
            raise DataError(
                f"{self.path}: changed while it was in use, so that its tasks are no longer those "
                "of one run; leave the file alone and start the run anew"
            )

    def _read(self, into: memoryview, at: int) -> None:
        if hasattr(os, "preadv"):  # has no position that forked processes would share
            done = os.preadv(self._file, [into], at)
        else:
            os.lseek(self._file, at, os.SEEK_SET)
            data = os.read(self._file, len(into))
            done, into[: len(data)] = len(data), data
        if done != len(into):
            raise DataError(f"{self.path}: cut short while it was in use; copy the file again")

    def _decoded(self, rows: np.ndarray) -> np.ndarray:
        return rows if self._decode is None else self._decode(rows)

    def __reduce__(self) -> Any:
        """Another process opens the file anew."""
        return DiskRows, (self.path, self.digest, self._decode, self._changed)
