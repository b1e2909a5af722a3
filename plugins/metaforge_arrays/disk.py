"""Images that stay on disk: put where rows can be read alone, looked through once. numpy alone.

An npy file is read where it is. A member of an npz file, whole or not at all to be read, is copied
once to the cache folder. What a look through all numbers finds (their digest, that they are
finite) is kept there too, under the file's place, size and time of change.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from metaforge.array_files import Arrays
from metaforge.cache import held
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.npy_files import BROKEN
from metaforge.records import keep, whole_file
from metaforge.storage import DiskRows, blocks, numbers_of
from metaforge_arrays.inputs import (
    decoded,
    not_finite,
    refuse_lengths,
    refuse_not_finite,
    scale_of,
    too_long,
)
from metaforge_arrays.options import ArraysOptions

#: Bytes copied at a time, and bytes between two lines of progress.
_COPY, _PROGRESS = 1 << 22, 1 << 28


def on_disk(
    options: ArraysOptions, arrays: Arrays, context: Context
) -> tuple[DiskRows, float | None]:
    """x, and the factor that takes it to [0, 1]. Raises ``DataError`` for a damaged file, for
    numbers that are not finite and for a cache folder without room."""
    told = arrays.told("x", options.x)
    path = _npy(arrays, options.x, told, context)
    with held(path) if not arrays.is_folder else nullcontext():
        header, _ = numbers_of(path)
        decode = partial(decoded, bits=options.bits, dtype=context.dtype)
        digest = _looked_through(path, told, decode, context)
        return DiskRows(path, digest, decode), scale_of(header.dtype, options.bits)


def lacking_room(arrays: Arrays, name: str, context: Context) -> str:
    """Why the images of an npz file cannot be copied to the cache folder, or nothing."""
    if arrays.is_folder:
        return ""
    member = _member(arrays, name)
    if _is_whole(_copy_of(arrays, member, context), member):
        return ""
    folder = next(path for path in (context.cache_dir, *context.cache_dir.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free >= member.file_size:
        return ""
    return (
        f"arrays: storage: disk copies {arrays.told('x', name)}, {_mib(member.file_size)}, to "
        f"{context.cache_dir}, which has {_mib(free)} left: set METAFORGE_CACHE to a folder with "
        "room, or give a folder of npy files, which are read where they are"
    )


def _npy(arrays: Arrays, name: str, told: str, context: Context) -> Path:
    """The npy file of an array; of an archive's, a copy."""
    assert arrays.path is not None
    if arrays.is_folder:
        return arrays.path / f"{name}.npy"
    member = _member(arrays, name)
    path = _copy_of(arrays, member, context)
    if not _is_whole(path, member):
        if line := lacking_room(arrays, name, context):
            raise DataError(line)
        _copy(arrays, member, path, told, context)
    return path


def _member(arrays: Arrays, name: str) -> zipfile.ZipInfo:
    assert arrays.path is not None
    with zipfile.ZipFile(arrays.path) as archive:
        return archive.getinfo(f"{name}.npy")


def _copy_of(arrays: Arrays, member: zipfile.ZipInfo, context: Context) -> Path:
    assert arrays.path is not None
    content = member.filename, member.CRC, member.file_size
    return context.cache_dir / "arrays" / f"{_identity(arrays.path, *content)}.npy"


def _is_whole(path: Path, member: zipfile.ZipInfo) -> bool:
    return path.is_file() and path.stat().st_size == member.file_size


def _copy(arrays: Arrays, member: zipfile.ZipInfo, path: Path, told: str, context: Context) -> None:
    """The archive checks its own sum as the member is read to its end."""
    assert arrays.path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"arrays: storage: disk needs {path.parent}, which cannot be made ({error.strerror}): "
            "set METAFORGE_CACHE to a folder that can be written"
        ) from error
    try:
        with zipfile.ZipFile(arrays.path) as archive, archive.open(member) as source:
            done = 0
            with whole_file(path) as file:
                while some := source.read(_COPY):
                    file.write(some)
                    done = _advance(done, len(some), member.file_size, f"copied {told}", context)
    except BROKEN as error:
        name = member.filename.removesuffix(".npy")
        raise DataError(f"arrays: {arrays.unreadable(name, error)}") from error


def _looked_through(path: Path, told: str, decode: partial[np.ndarray], context: Context) -> str:
    """The digest of all numbers, once they are found to be finite."""
    note = context.cache_dir / "arrays" / f"{_identity(path, context.dtype, decode.keywords)}.json"
    if (known := _known(note)) is not None:
        return known
    digest = hashlib.blake2b(digest_size=16)
    bad: dict[str, list[np.ndarray]] = {"finite": [], "length": []}
    first, done, size = 0, 0, path.stat().st_size
    for rows in blocks(path):
        digest.update(rows.reshape(-1).view(np.uint8).data)
        images = decode(rows)
        if images.dtype.kind == "f":
            bad["finite"].append(first + not_finite(images))
            bad["length"].append(first + too_long(images))
        first += len(rows)
        done = _advance(done, rows.nbytes, size, f"looked through {told}", context)
    if bad["finite"]:
        refuse_not_finite(told, np.concatenate(bad["finite"]))
        refuse_lengths(told, np.concatenate(bad["length"]), np.dtype(context.dtype))
    keep(note, json.dumps({"digest": digest.hexdigest()}).encode(), context.report)
    return digest.hexdigest()


def _known(note: Path) -> str | None:
    """The digest that an earlier look found; None if there was none, or its record is damaged."""
    try:
        found = json.loads(note.read_text())["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _identity(path: Path, *more: object) -> str:
    """Names a file as it stands: its place, size and time of change, and what else matters."""
    stat = path.stat()
    text = repr((str(path.resolve()), stat.st_size, stat.st_mtime_ns, more))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _advance(done: int, more: int, size: int, what: str, context: Context) -> int:
    """Report each time that another part is done."""
    if (done + more) // _PROGRESS > done // _PROGRESS:
        context.report(f"arrays: {what}: {_mib(done + more)} of {_mib(size)} (once)")
    return done + more


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
