"""What pickled numpy arrays are made of, as stand-ins that check before numpy allocates.

The names that a pickle may ask for stand for the functions and classes here. Neither numpy's
own constructors nor its ``__setstate__`` see anything from a file: an array is a view of the
file's bytes, once its shape and element type agree with their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

#: Bools, integers, floats, strings of fixed length, and references to Python objects.
_ELEMENT = re.compile(r"b1|[iu][1248]|f[248]|[SU][1-9]\d{0,3}|O[48]?")

#: The longest string that counts as short: longer bytes stay views of the file.
SHORT = 1 << 12

#: The most axes of an array: images [n, height, width, channels].
_AXES = 4


class BadPickle(Exception):
    """What was found in a pickle, in words: it is not whole, or not plain data alone."""


def as_text(value: Any) -> str:
    """A short string of Python 2 (read as Latin-1) or 3."""
    if type(value) not in (bytes, str) or len(value) > SHORT:
        raise BadPickle(f"it has a {type(value).__name__} where a short string belongs")
    return value.decode("latin1") if type(value) is bytes else value


class Dtype:
    """The type of an array's elements: simple ones, no records, nothing with metadata."""

    def __init__(self, code: Any, align: Any = None, copy: Any = None):
        element = as_text(code)
        if not _ELEMENT.fullmatch(element):
            raise BadPickle(f"it has an array of {element[:40]!a}")
        self.numpy = np.dtype(element)

    def set_state(self, version: Any, order: Any, *more: Any) -> None:
        if any(part is not None for part in more[:3]):
            raise BadPickle("it has an array of records or of arrays")
        self.numpy = self.numpy.newbyteorder(_order(order))


def _order(value: Any) -> Any:
    order = as_text(value)
    if order not in ("<", ">", "|", "="):
        raise BadPickle(f"it has an array of byte order {order[:10]!a}")
    return order


class Array:
    """An array on its way: ``value`` is an ndarray, or a list of objects, once it is there."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: np.ndarray | list[Any] | None = None

    def set_state(self, version: Any, shape: Any, dtype: Any, fortran: Any, content: Any) -> None:
        """numpy's own state. The announced shape and the content must agree."""
        if type(dtype) is not Dtype:
            raise BadPickle(f"it has an array of {type(dtype).__name__}")
        if type(shape) is not tuple or not all(type(size) is int for size in shape):
            raise BadPickle("it has an array without a shape")
        if not 1 <= len(shape) <= _AXES or min(shape) < 1:
            raise BadPickle(
                f"it has an array of shape {_shown(shape)}; 1 to {_AXES} axes are read, none empty"
            )
        if dtype.numpy.hasobject:
            self.value = _objects(shape, content)
            return
        size = prod(shape) * dtype.numpy.itemsize
        if not isinstance(content, bytes | memoryview) or len(content) != size:
            found = f"{len(content)} bytes" if hasattr(content, "__len__") else "no bytes"
            raise BadPickle(
                f"it has an array of shape {_shown(shape)} and type {dtype.numpy.str}, which takes "
                f"{size} bytes, with {found}"
            )
        flat = np.frombuffer(content, dtype.numpy)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def _objects(shape: tuple[int, ...], content: Any) -> list[Any]:
    if type(content) is not list or shape != (len(content),):
        found = f"{len(content)} objects" if type(content) is list else "no objects"
        raise BadPickle(f"it has an array of objects of shape {_shown(shape)}, with {found}")
    return content


def _shown(shape: tuple[int, ...]) -> str:
    """Of a bounded length, whatever the file says."""
    text = ", ".join(map(str, shape[:4]))
    return f"[{text}, ...]" if len(shape) > 4 else f"[{text}]"


#: Stands for ``numpy.ndarray``, which a pickle only passes on.
_NDARRAY = object()


def _reconstruct(kind: Any, shape: Any, code: Any) -> Array:
    """An array whose state follows; the shape given here is a dummy."""
    if kind is not _NDARRAY:
        raise BadPickle("it has an array that is no numpy.ndarray")
    return Array()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """An array of protocol 5, which has its bytes beside its shape."""
    if (layout := as_text(order)) not in ("C", "F"):
        raise BadPickle(f"it has an array of order {layout[:10]!a}")
    array = Array()
    array.set_state(1, shape, dtype, layout == "F", content)
    return array


def _scalar(dtype: Any, content: Any) -> Any:
    """One number or string, as lists of numpy's scalars have them."""
    array = Array()
    array.set_state(1, (1,), dtype, False, content)
    assert isinstance(array.value, np.ndarray)
    return array.value.tolist()[0]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How protocol 2 of Python 3 writes bytes."""
    if as_text(encoding) not in ("latin1", "latin-1"):
        raise BadPickle(f"it has bytes in the encoding {as_text(encoding)[:40]!a}")
    if type(text) is not str:
        raise BadPickle(f"it encodes a {type(text).__name__}")
    return text.encode("latin1")


NAMES: Mapping[tuple[str, str], Any] = {
    **{
        (f"numpy.{core}.{name}", function): maker
        for core in ("core", "_core")  # before and since numpy 2
        for name, function, maker in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): Dtype,
    ("_codecs", "encode"): _encode,
}

#: Those of the names that may be called.
MAKERS: tuple[Callable[..., Any], ...] = (_reconstruct, _scalar, _from_buffer, Dtype, _encode)
