"""The numbers of x: unpacked, checked, normalised. numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from metaforge.array_files import Arrays
from metaforge.class_labels import first_few
from metaforge.components import Context
from metaforge.embedded import EMBEDDED, embedded
from metaforge.errors import DataError
from metaforge.preprocess import Normalize, Preprocess, standardized, unit_rows
from metaforge_arrays.options import ArraysOptions


class Read(NamedTuple):
    """Samples [n, *x], the factor that takes images to [0, 1] (None for 1), and what was done to
    raw samples."""

    values: np.ndarray
    scale: float | None
    preprocess: Preprocess | None


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the arrays of x and of the features, headers checked before, numbers now.

    ``train`` are the rows of the training classes; what is remarkable goes to
    ``context.report``.
    """

    options: ArraysOptions
    arrays: Arrays
    train: np.ndarray
    context: Context

    def x(self) -> Read:
        """Features [n, p] or images [n, c, h, w].

        Images of bytes or bits stay bytes until they are batched. Channels may come last
        where there are 1, 3 or 4 of them.
        """
        told, bits = self.arrays.told("x", self.options.x), self.options.bits
        x = self.arrays.get("x", self.options.x)
        if bits is not None:
            unpacked = decoded(x, bits, self.context.dtype)
            return Read(unpacked, None, images_preprocess(unpacked.shape[1:]))
        if x.ndim == 2:
            return self._features("x", told, x)
        images = decoded(x, None, self.context.dtype)
        if images.dtype.kind == "f":
            check_lengths(told, check_finite(told, images))
            return Read(images, None, Preprocess(images.shape[1:]))
        return Read(images, scale_of(x.dtype, None), images_preprocess(images.shape[1:]))

    def features(self) -> Read | None:
        """[n, p], or None where there are none beside x."""
        given = self.options.features
        if given is None:
            return None
        told = self.arrays.told("features", given)
        return self._features("features", told, self.arrays.get("features", given))

    def _features(self, option: str, told: str, given: np.ndarray) -> Read:
        values = check_finite(told, as_float(given, self.context.dtype))
        if line := constant_columns(told, values):
            self.context.report(line)
        if self.options.normalize == "none" and (line := zero_rows(told, values)):
            self.context.report(line)
        how = self.options.normalize
        if how != "standardize":
            check_lengths(told, values)
        found, mean, sd = normalize(told, values, self.train, how)
        name = getattr(self.options, option)
        is_own = isinstance(name, str) and name == EMBEDDED
        origin = embedded(self.arrays) if is_own else None
        if option == "features" and origin is None:
            return Read(found, None, None)  # what made them of x is not known
        preprocess = Preprocess(found.shape[1:], **(origin or {}), normalize=how, mean=mean, sd=sd)
        return Read(found, None, preprocess)


def images_preprocess(shape: tuple[int, ...]) -> Preprocess:
    """Of images [c, h, w] that are bytes or bits."""
    from metaforge.image_files import ImageForm

    form = ImageForm(*shape) if shape[0] in (1, 3) else None
    return Preprocess(shape, form)


def check_header(option: str, options: ArraysOptions, arrays: Arrays) -> tuple[int, ...]:
    """The shape of x or of the features, whose numbers are not read for it.

    Raises ``DataError`` for what is not numbers, or neither features nor images.
    """
    value = getattr(options, option)
    shape, dtype = arrays.header(option, value)
    found = f"arrays: {arrays.told(option, value)} has shape {list(shape)} and dtype {dtype}"
    expected = "[n, p]"
    if option == "x":
        expected = "features [n, p] or images [n, h, w], [n, c, h, w] or [n, h, w, c]"
    if 0 in shape[1:]:
        raise DataError(f"{found}: its rows hold no numbers; expected {expected} with one at least")
    packed = option == "x" and options.bits is not None  # ``_unpack`` knows better
    usual = len(shape) == 2 if option == "features" else 2 <= len(shape) <= 4
    if not packed and (dtype.kind not in "biuf" or not usual):
        raise DataError(f"{found}; expected numbers, as {expected}")
    images = packed or (option == "x" and len(shape) > 2)
    if option == "x" and not images and options.storage == "disk":
        raise DataError(f"{found}: storage: disk is for images; features fit in memory: drop it")
    if option == "x":
        unfit = options.augment.unfit_images(sample_shape(options.bits or shape[1:]))
        if unfit:
            raise DataError(f"{found}: {unfit}")
    if images and options.features is None and options.normalize != "none":
        raise DataError(
            f"{found}: normalize: {options.normalize} is for features [n, p]; set normalize: none"
        )
    return shape


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


def decoded(rows: np.ndarray, bits: tuple[int, ...] | None, dtype: str) -> np.ndarray:
    """Images [k, c, h, w] of rows as they are kept: of bytes, bits and truth values as bytes,
    of other numbers in the run's precision."""
    if bits is not None:
        return _channels_first(_unpack(rows, bits))
    if rows.dtype.kind == "b":
        return _channels_first(rows.astype(np.uint8))
    if rows.dtype == np.uint8:
        return _channels_first(rows)
    return _channels_first(as_float(rows, dtype))


def scale_of(dtype: np.dtype, bits: tuple[int, ...] | None) -> float | None:
    """The factor that takes images of a dtype to [0, 1]; None for 1."""
    return 1 / 255 if dtype == np.uint8 and bits is None else None


def sample_shape(given: Sequence[int]) -> tuple[int, ...]:
    """The shape that a sample of x, as it is given, has in a batch."""
    if len(given) == 2:
        return (1, *given)
    if _channels_last(given):
        return (given[2], *given[:2])
    return tuple(given)


def _channels_last(sample: Sequence[int]) -> bool:
    return len(sample) == 3 and sample[2] in (1, 3, 4) and sample[0] not in (1, 3, 4)


def _channels_first(images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        return images[:, None]
    if _channels_last(images.shape[1:]):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def normalize(
    option: str, values: np.ndarray, train: np.ndarray, how: Normalize
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Finite features [n, p] of a float dtype, normalised; and mean and spread [p] under
    ``standardize``.

    ``l2``: each row by its length; ``standardize``: each column by the mean and standard
    deviation of the rows ``train`` (a column that is constant there is centred alone).
    Raises ``DataError`` for rows of zeros under ``l2``.
    """
    if how == "l2":
        if line := zero_rows(option, values):
            raise DataError(f"{line}; leave them out, or set normalize: none")
        return unit_rows(values), None, None
    if how == "standardize":
        seen = values[train].astype(np.float64)
        mean, spread = seen.mean(0), seen.std(0)
        return standardized(values, mean, spread), mean, spread
    return values, None, None


def check_finite(option: str, values: np.ndarray) -> np.ndarray:
    """The values. Raises ``DataError`` with the first rows that are not finite."""
    refuse_not_finite(option, not_finite(values))
    return values


def not_finite(values: np.ndarray) -> np.ndarray:
    """The rows of [n, *] that are not finite."""
    return np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))


def refuse_not_finite(option: str, bad: np.ndarray) -> None:
    if len(bad):
        raise DataError(
            f"arrays: {len(bad)} rows of {option} hold NaN or infinite numbers, first "
            f"{first_few(bad)}; mend them or leave them out"
        )


def check_lengths(option: str, values: np.ndarray) -> np.ndarray:
    """The finite values. Raises ``DataError`` with the first rows whose squared length their
    dtype cannot hold: norms of theirs are infinite, and dividing by them leaves zeros."""
    refuse_lengths(option, too_long(values), values.dtype)
    return values


def too_long(values: np.ndarray) -> np.ndarray:
    """The rows of [n, *] whose squared length is not finite."""
    rows = values.reshape(len(values), -1)
    return np.flatnonzero(~np.isfinite(np.einsum("ij,ij->i", rows, rows)))


def refuse_lengths(option: str, bad: np.ndarray, dtype: np.dtype) -> None:
    if len(bad):
        raise DataError(
            f"arrays: {len(bad)} rows of {option} are too large for {dtype}, which does not "
            f"hold their squared lengths, first {first_few(bad)}: divide all rows by a number, or "
            "standardize"
        )


def zero_rows(option: str, values: np.ndarray) -> str | None:
    """A line that names the rows of [n, p] which are all zeros, if any are."""
    zero = np.flatnonzero(~values.any(1))
    if not len(zero):
        return None
    return (
        f"arrays: {len(zero)} rows of {option} are all zeros, first {first_few(zero)}: they have "
        "no direction, which L2 normalisation (of ls, r2d2, the task kernels) asks for"
    )


def constant_columns(option: str, values: np.ndarray) -> str | None:
    """A line that names the columns of [n, p] which are the same in every row, if any are.

    Raises ``DataError`` where all are."""
    constant = np.flatnonzero((values == values[:1]).all(0))
    if not len(constant):
        return None
    if len(constant) == values.shape[1]:
        raise DataError(
            f"arrays: all rows of {option} are the same: nothing tells their classes apart; give "
            "features that differ"
        )
    return (
        f"arrays: {len(constant)} of {values.shape[1]} columns of {option} are constant, "
        f"first {first_few(constant)}: they say nothing of a class"
    )
