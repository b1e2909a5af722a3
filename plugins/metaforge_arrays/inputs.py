"""The numbers of x: unpacked, checked, normalised. numpy alone."""

from __future__ import annotations

from math import prod

import numpy as np

from metaforge.errors import DataError
from metaforge_arrays.classes import first_few
from metaforge_arrays.options import ArraysOptions


def read_x(x: np.ndarray, options: ArraysOptions, dtype: str) -> tuple[np.ndarray, float | None]:
    """Features [n, p] or images [n, c, h, w], and the factor that takes images to [0, 1].

    Images of bytes or bits stay bytes until they are batched. Channels may come last where
    there are 1, 3 or 4 of them.
    """
    if options.bits is not None:
        return _channels_first(_unpack(x, options.bits)), None
    if x.ndim < 2 or x.dtype.kind not in "biuf":
        raise DataError(
            f"arrays: x has shape {list(x.shape)} and dtype {x.dtype}; expected numbers, as "
            "features [n, p] or images [n, h, w], [n, c, h, w] or [n, h, w, c]"
        )
    if x.ndim == 2:
        return as_float(x, dtype), None
    if x.dtype.kind == "b":
        return _channels_first(x.astype(np.uint8)), None
    if x.dtype == np.uint8:
        return _channels_first(x), 1 / 255
    return check_finite("x", _channels_first(as_float(x, dtype))), None


def as_float(values: np.ndarray, dtype: str) -> np.ndarray:
    """In the run's precision; what overflows becomes infinite, for ``check_finite`` to name."""
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _unpack(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Bits of images [n, *shape] from rows of bytes, first pixel in the highest bit."""
    size = prod(shape)
    expected = -(-size // 8)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != expected:
        raise DataError(
            f"arrays: x has shape {list(packed.shape)} and dtype {packed.dtype}; bits: "
            f"{list(shape)} expects uint8 rows of {expected} bytes, as numpy.packbits makes"
        )
    return np.unpackbits(packed, axis=1)[:, :size].reshape(len(packed), *shape)


def _channels_first(images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in (1, 3, 4) and images.shape[1] not in (1, 3, 4):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def normalize(option: str, values: np.ndarray, train: np.ndarray, how: str) -> np.ndarray:
    """Finite features [n, p] of a float dtype, normalised.

    ``l2``: each row by its length; ``standardize``: each column by the mean and standard
    deviation of the rows ``train`` (a column that is constant there is centred alone).
    Raises ``DataError`` for rows of zeros under ``l2``.
    """
    if how == "l2":
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        zero = np.flatnonzero(norms[:, 0] == 0)
        if len(zero):
            raise DataError(
                f"arrays: {len(zero)} rows of {option} are all zeros, first {first_few(zero)}: "
                "they have no direction; leave them out, or set normalize: none"
            )
        return values / norms
    if how == "standardize":
        seen = values[train].astype(np.float64)
        spread = seen.std(0)
        scaled = (values - seen.mean(0)) / np.where(spread > 0, spread, 1.0)
        return scaled.astype(values.dtype)
    return values


def check_finite(option: str, values: np.ndarray) -> np.ndarray:
    """The values. Raises ``DataError`` with the first rows that are not finite."""
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))
    if len(bad):
        raise DataError(
            f"arrays: {len(bad)} rows of {option} hold NaN or infinite numbers, first "
            f"{first_few(bad)}; mend them or leave them out"
        )
    return values


def constant_columns(option: str, values: np.ndarray) -> str | None:
    """A line that names the columns of [n, p] which are the same in every row, if any are."""
    constant = np.flatnonzero((values == values[:1]).all(0))
    if not len(constant):
        return None
    return (
        f"arrays: {len(constant)} of {values.shape[1]} columns of {option} are constant, "
        f"first {first_few(constant)}: they say nothing of a class"
    )
