"""Arrays of npy files and npz archives, from files that nobody vouches for. Torch-free.

numpy allocates what a header claims, and its parser raises whatever it comes upon. Here a header
is held against the bytes that are there, and against the memory that is free, before an array is
made, and every fault is a ``ValueError`` or one of ``BROKEN``. Nothing in a file is executed.
"""

from __future__ import annotations

import lzma
import os
import warnings
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from metaforge import memory
from metaforge.errors import DataError, one_line

#: What reading a damaged file, or a member of a damaged archive, raises: also members that are
#: encrypted (RuntimeError) or packed in a way that zipfile does not know (NotImplementedError).
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, KeyError),
    *(RuntimeError, OverflowError),
)
#: Bools, numbers, times, strings and Python objects, which are told from records and blocks.
_KINDS = "biufcmMSUO"
#: Bytes from which an array is held against the memory that is free.
_LARGE = 1 << 24


class Header(NamedTuple):
    """What an npy file says of its array. ``fortran`` is the order of the axes on disk."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> Header:
    """The header of an npy file (or of a member of an archive), which is read up to the numbers.

    Raises ``ValueError`` where there is none, or where it claims what no array has.
    """
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"npy format {version[0]}.{version[1]} is none of 1.0 and 2.0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            header = Header(*readers[version](file))
    except (OSError, zlib.error, EOFError, zipfile.BadZipFile):
        raise
    except Exception as error:  # of ast, tokenize, re and numpy
        raise ValueError(f"its header cannot be read: {one_line(error)}") from error
    shape, dtype = header.shape, header.dtype
    if any(type(size) is not int or size < 0 for size in shape) or len(shape) > 32:
        raise ValueError(f"its header claims the shape {str(shape)[:80]}")
    if dtype.kind not in _KINDS or header.nbytes > np.iinfo(np.int64).max:
        raise ValueError(f"its header claims {str(dtype)[:80]} of the shape {str(shape)[:80]}")
    return header


def read_array(file: IO[bytes], size: int, what: str) -> np.ndarray:
    """The array of an npy file, or of an archive's member, of ``size`` bytes.

    Raises ``ValueError`` for a header that claims other numbers than follow, and for Python
    objects, and ``DataError`` where ``what`` is more than the memory that is free.
    """
    header = read_header(file)
    if not header.dtype.hasobject and header.nbytes > (there := size - file.tell()):
        raise ValueError(
            f"{max(0, there)} bytes of numbers, expected {header.nbytes} for "
            f"{list(header.shape)} of {header.dtype}"
        )
    free = memory.free() if header.nbytes > _LARGE else None
    if free is not None and header.nbytes > free:
        raise DataError(
            f"{what}: takes {memory.gigabytes(header.nbytes)} of memory, and "
            f"{memory.gigabytes(free)} are free"
        )
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.lib.format.read_array(file, allow_pickle=False)


def read_member(path: Path, name: str) -> np.ndarray:
    """The array ``name`` of an npz archive. Raises ``BROKEN`` and ``DataError``."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member) as file:
            return read_array(file, member.file_size, f"{path}: array {name!r}")


def read_file(path: Path) -> np.ndarray:
    """The array of an npy file. Raises ``BROKEN`` and ``DataError``."""
    with path.open("rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size, str(path))
