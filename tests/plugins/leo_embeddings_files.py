"""Files in the form of the released LEO embeddings: a dict as Python 2 pickled it, protocol 2."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SPLITS = ("train", "val", "test")
CLASSES = {"train": 9, "val": 6, "test": 7}
ROWS, WIDTH = 20, 12


def pickled(entries: Mapping[str, Any]) -> bytes:
    """What ``cPickle.dump(entries, file, 2)`` of Python 2.7 writes: strings are strings of
    bytes, arrays are ``numpy.core.multiarray._reconstruct`` and a state."""
    return b"\x80\x02" + _Python2().value(dict(entries)) + b"."


class _Python2:
    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def value(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, str | bytes):
            return self._string(value.encode("latin1") if isinstance(value, str) else value)
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, list):
            return self._new(b"]") + b"(" + b"".join(map(self.value, value)) + b"e"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.value, value)) + self._new(b"t")
        if isinstance(value, dict):
            items = b"".join(self.value(k) + self.value(v) for k, v in value.items())
            return self._new(b"}") + b"(" + items + b"u"
        assert value is None
        return b"N"

    def _new(self, made: bytes, key: Any = None) -> bytes:
        """``made``, and the number by which it can be referred to."""
        number = len(self.numbers) + 1
        self.numbers[number if key is None else key] = number
        return made + self._numbered(b"q", b"r", number)

    def _again(self, key: Any, made: bytes) -> bytes:
        """``made``, or a reference to it if it was made before."""
        if key in self.numbers:
            return self._numbered(b"h", b"j", self.numbers[key])
        return self._new(made, key)

    @staticmethod
    def _numbered(short: bytes, long: bytes, number: int) -> bytes:
        return short + bytes([number]) if number < 256 else long + struct.pack("<I", number)

    def _string(self, value: bytes) -> bytes:
        if len(value) < 256:
            return self._again(value, b"U" + bytes([len(value)]) + value)
        return self._new(b"T" + struct.pack("<i", len(value)) + value)

    @staticmethod
    def _integer(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        return b"J" + struct.pack("<i", value)

    def _global(self, module: str, name: str) -> bytes:
        return self._again((module, name), f"c{module}\n{name}\n".encode())

    def _array(self, array: np.ndarray) -> bytes:
        start = self._global("numpy.core.multiarray", "_reconstruct")
        start += self._global("numpy", "ndarray") + self.value((0,)) + self._string(b"b")
        if array.dtype.hasobject:
            content = self.value(array.ravel().tolist())
        else:
            content = self._string(array.tobytes())
        state = self._integer(1) + self.value(array.shape) + self._dtype(array.dtype)
        state += b"\x89" + content
        return start + self._new(b"\x87") + self._new(b"R") + b"(" + state + self._new(b"t") + b"b"

    def _dtype(self, dtype: np.dtype) -> bytes:
        code = "O8" if dtype.hasobject else dtype.str[1:]
        text = dtype.kind in "SU"
        order = "|" if dtype.kind in "SOb" else dtype.str[0]
        sizes = (dtype.itemsize, 4 if dtype.kind == "U" else 1) if text else (-1, -1)
        start = self._global("numpy", "dtype") + self._string(code.encode())
        start += self._new(self._integer(0) + self._integer(1) + b"\x87") + self._new(b"R")
        flags = 63 if dtype.hasobject else 0
        state = (3, order, None, None, None, *sizes, flags)
        return start + self.value(state) + b"b"


def entries(split: str, seed: int = 0, rows: int = ROWS, width: int = WIDTH) -> dict[str, Any]:
    """A split's dict: classes apart, keys in no order, values raw and not negative."""
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    classes = rng.permutation(np.repeat(np.arange(CLASSES[split]), rows))
    first = 1000 * SPLITS.index(split)
    names = [f"n{first + number:08d}" for number in classes]
    keys = [f"{split}-{name}-{name}_{row}.JPEG" for row, name in enumerate(names)]
    centres = rng.gamma(1.0, size=(CLASSES[split], width))
    values = centres[classes] + rng.gamma(1.0, size=(len(classes), width))
    return {
        "embeddings": values.astype(np.float32),
        "labels": classes.astype(np.int64),
        "keys": np.array(keys, dtype=object),
    }


def folder_of(root: Path, variant: str = "mini", crop: str = "center") -> Path:
    """The archive's own folder."""
    return root / {"mini": "miniImageNet", "tiered": "tieredImageNet"}[variant] / crop


def write(
    root: Path, variant: str = "mini", crop: str = "center", splits: Sequence[str] = SPLITS, **size
) -> Path:
    """The archive's three files, in a few kilobytes."""
    folder = folder_of(root, variant, crop)
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        data = pickled(entries(split, **size))
        (folder / f"{split}_embeddings.pkl").write_bytes(data)
    return root
