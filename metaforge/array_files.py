"""Named arrays of an npz file or of a folder of npy files, or arrays given as they are.

Nothing in a file is ever executed: pickled (object) arrays are refused.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from metaforge.errors import DataError
from metaforge.npy_files import BROKEN, read_file, read_header, read_member
from metaforge.suggest import did_you_mean

#: Kinds of Python objects, and the dtype of arrays that hold one kind alone.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "U"),
    "bytes": ((bytes,), "S"),
    "bool": ((bool, np.bool_), "bool"),
    "int": ((Integral,), "int64"),
    "float": ((Real,), "float64"),
}

#: Bytes of text in ASCII.
_TEXT = bytes([*range(32, 127), *b"\t\r\n"])
#: What is read, and how to make it.
_WANTED = "an npz archive, made by numpy.savez('data.npz', X=features, y=labels)"
_FOLDER = "a folder of npy files, X.npy and y.npy"


class Arrays:
    """What an option's value means: a name in the file at ``path``, or an array itself."""

    def __init__(self, path: Path | None):
        self.path = path
        self.names = () if path is None else _names(path)

    def missing(self, named: Mapping[str, Any]) -> list[str]:
        """A line for each option whose value names an array that is not there."""
        lines = []
        for option, value in named.items():
            if not isinstance(value, str) or value in self.names:
                continue
            if self.path is None:
                lines.append(f"{option} names an array {value!r}, but there is no path to read")
            else:
                lines.append(
                    f"{self.path} has no array {value!r} (option {option}); it holds "
                    f"{', '.join(self.names)}{did_you_mean(value, self.names)}"
                )
        return lines

    def get(self, option: str, value: Any) -> np.ndarray:
        """The array that ``option`` asks for. Raises ``DataError`` if it cannot be read."""
        if not isinstance(value, str):
            return _in_memory(option, value)
        if lines := self.missing({option: value}):
            raise DataError(f"arrays: {lines[0]}")
        try:
            assert self.path is not None
            if self.is_folder:
                return read_file(self.path / f"{value}.npy")
            return read_member(self.path, value)
        except BROKEN as error:
            raise DataError(f"arrays: {self.unreadable(value, error)}") from error

    def header(self, option: str, value: Any) -> tuple[tuple[int, ...], np.dtype]:
        """The array's shape and dtype, of a file's without its numbers."""
        if not isinstance(value, str):
            array = _in_memory(option, value)
            return array.shape, array.dtype
        if lines := self.missing({option: value}):
            raise DataError(f"arrays: {lines[0]}")
        try:
            with self._open(value) as file:
                shape, _, dtype = read_header(file)
        except BROKEN as error:
            raise DataError(f"arrays: {self.unreadable(value, error)}") from error
        if dtype.hasobject:
            raise DataError(f"arrays: {self.unreadable(value, ValueError('pickle'))}")
        return shape, dtype

    @property
    def is_folder(self) -> bool:
        return self.path is not None and self.path.is_dir()

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO | Any]:
        """The npy file of an array, or the archive's member that is one."""
        assert self.path is not None
        if self.is_folder:
            with (self.path / f"{name}.npy").open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as member:
                yield member

    def told(self, option: str, value: Any) -> str:
        """An option's array in words: ``x``, or ``x ('X' of /data/mine.npz)``."""
        return f"{option} ({value!r} of {self.path})" if isinstance(value, str) else option

    def unreadable(self, name: str, error: BaseException) -> str:
        """What is wrong with the array of the file that raised an error when it was read."""
        if "pickle" in str(error):
            return (
                f"{self.path}: array {name!r} holds Python objects, which are not read; save it "
                "as numbers or as strings (dtype U)"
            )
        whole = "npy file" if self.is_folder else "npz archive"
        return (
            f"{self.path}: array {name!r} is damaged ({error}); expected a whole {whole}: "
            "copy the file again"
        )


def _names(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        if names := tuple(sorted(file.stem for file in path.glob("*.npy"))):
            return names
        raise DataError(
            f"arrays: {path}: is a folder, not an npz file, and has no npy files; expected "
            f"{_WANTED}, or {_FOLDER}"
        )
    if not path.is_file():
        raise DataError(
            f"arrays: {path}: no such file; a relative path starts at the recipe's folder, in "
            "key=value at the current one"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except BROKEN as error:
        raise DataError(f"arrays: {path}: {_no_archive(path, error)}") from error
    names = tuple(name.removesuffix(".npy") for name in members if name.endswith(".npy"))
    if not names:
        others = f" (its members: {', '.join(members[:5])})" if members else ""
        raise DataError(f"arrays: {path} holds no array{others}; expected {_WANTED}")
    return names


def _no_archive(path: Path, error: Exception) -> str:
    """What a file is that is no npz archive, and what to do."""
    with path.open("rb") as file:
        start = file.read(1024)
    if start.startswith(b"\x93NUMPY"):
        return f"found one bare array (npy), without labels; expected {_WANTED}"
    if start and not start.translate(None, _TEXT):
        return f"found text, such as a table has; expected {_WANTED}"
    return (
        f"found {path.stat().st_size} bytes that are not a whole npz archive ({error}); "
        f"expected {_WANTED}, or copy the file again"
    )


def _in_memory(option: str, value: Any) -> np.ndarray:
    """A numpy array from an array, a list or a torch tensor on any device.

    Objects (a column of a data frame) become strings or numbers. Raises ``DataError`` where
    they are not all of one kind, or where the rows differ in length.
    """
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except ValueError as error:
        raise DataError(f"arrays: {option} does not make one array: {error}") from error
    return _of_one_kind(option, array) if array.dtype.kind == "O" else array


def _of_one_kind(option: str, objects: np.ndarray) -> np.ndarray:
    found = Counter(map(_kind, objects.flat))
    (kind,) = found if len(found) == 1 else ("several kinds",)
    if kind not in _KINDS:
        told = ", ".join(f"{kind} ({count})" for kind, count in found.most_common())
        raise DataError(
            f"arrays: {option} holds objects: {told or 'none'}; expected one kind, all strings or "
            "all numbers: give every row one, or leave it out"
        )
    try:
        return objects.astype(_KINDS[kind][1])
    except OverflowError as error:
        raise DataError(f"arrays: {option} has a number beyond 64 bits ({error})") from error


def _kind(item: Any) -> str:
    names = (kind for kind, (types, _) in _KINDS.items() if isinstance(item, types))
    return next(names, type(item).__name__)
