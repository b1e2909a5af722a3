"""Image files that are no files: members of an archive, or bytes in memory."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO


class Blobs:
    """What ``metaforge.image_files`` reads in place of a folder: ``blobs / name`` can be opened."""

    def __init__(self, where: str, read: Callable[[str], bytes | memoryview]):
        self._where, self._read = where, read

    def __str__(self) -> str:
        return self._where

    def __truediv__(self, name: str) -> Blob:
        return Blob(self._read, name)


class Blob:
    def __init__(self, read: Callable[[str], bytes | memoryview], name: str):
        self._read, self._name = read, name

    def open(self, mode: str) -> BinaryIO:
        """The bytes, ``rb`` alone. Raises ``OSError`` where the archive is damaged there."""
        return BytesIO(self._read(self._name))
