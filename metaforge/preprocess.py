"""From raw samples to what a learner sees: of files of the user's as of the data it learned from.

In this order: images in one form, bytes scaled to [0, 1]; a backbone's features; normalisation;
a projection. Each step may be missing. A sample may also be given as the backbone's features.

Symbols: n samples, p numbers of a sample before normalisation, w after the projection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metaforge.components import Context
from metaforge.errors import DataError, PluginError

if TYPE_CHECKING:
    from metaforge.contracts import Backbone
    from metaforge.image_files import ImageForm

Normalize = Literal["none", "l2", "standardize"]
#: Rows that a message names.
_NAMED = 5
#: Names of the arrays that a ``Preprocess`` holds.
_ARRAYS = ("mean", "sd", "shift", "basis")


@dataclass(frozen=True, eq=False)
class Preprocess:
    """What is done to a raw sample.

    shape                 of a sample before it is normalised: of an image [c, h, w], or [p]
    images                how all images are given; None where samples are no images
    backbone              ``{"use": name, **options}`` of what makes features of images, or None
    backbone_fingerprint  of its weights
    normalize             l2: each row by its length; standardize: each column by ``mean`` and
                          ``sd`` [p] float64; none
    shift, basis          [p] and [p, w] float64: ``(x - shift) basis``; None without projection
    unit                  whether projected rows are divided by their length
    columns               names of the p numbers, where they are columns of a table
    """

    shape: tuple[int, ...]
    images: ImageForm | None = None
    backbone: Mapping[str, Any] | None = None
    backbone_fingerprint: str | None = None
    normalize: Normalize = "none"
    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    shift: np.ndarray | None = None
    basis: np.ndarray | None = None
    unit: bool = False
    columns: tuple[str, ...] | None = None

    def __call__(self, samples: np.ndarray, context: Context | None = None) -> np.ndarray:
        """What the learner sees of raw samples, [n, *x] in the context's precision.

        samples  images [n, c, h, w], [n, h, w], [n, h, w, c] or as rows [n, c * h * w], bytes or
                 numbers in [0, 1], bytes of any size and grey or RGB; or rows of numbers [n, p],
                 such as the backbone's features

        Raises ``DataError`` for samples of another shape, numbers that are not finite, images
        that are not in [0, 1] and, under l2, rows of zeros; ``PluginError`` where the backbone
        that made the learner's features is not here.
        """
        context = context or Context()
        given = np.asarray(samples)
        if given.dtype.kind not in "biuf" or given.ndim < 2 or not len(given):
            raise DataError(
                f"samples of shape {list(given.shape)} and dtype {given.dtype}; expected numbers, "
                f"{self.expected}"
            )
        images = self.as_images(given)
        if images is None:
            values = self._rows(given, context.dtype)
        elif self.backbone is None:
            values = scaled(images, context.dtype)
        else:
            values = self._features(images, context)
        return self._projected(self._normalized(values)).astype(context.dtype, copy=False)

    def as_images(self, given: np.ndarray) -> np.ndarray | None:
        """[n, c, h, w] of samples that are images of the form, or bytes that are brought to it as
        files are; None for other samples."""
        if self.images is None:
            return None
        form = self.images.channels, self.images.height, self.images.width
        if given.ndim == 2 and given.shape[1] == prod(form) and given.shape[1:] != self.shape:
            return given.reshape(-1, *form)
        if given.ndim == 3 and form[0] == 1:
            given = given[:, None]
        elif given.ndim == 4 and given.shape[1:] != form and given.shape[3] == form[0]:
            given = given.transpose(0, 3, 1, 2)
        if given.shape[1:] == form:
            return given
        return in_form(given, self.images) if given.dtype == np.uint8 else None

    @property
    def expected(self) -> str:
        """What samples may be, in words."""
        words = []
        if self.images is not None:
            form = self.images
            words.append(f"images [n, {form.channels}, {form.height}, {form.width}]")
        if self.images is None or self.backbone is not None:
            kind = "features" if self.backbone is not None else "samples"
            words.append(f"{kind} [n, {', '.join(map(str, self.shape))}]")
        return " or ".join(words)

    def projected(self, shift: np.ndarray, basis: np.ndarray, unit: bool) -> Preprocess | None:
        """This, and then a projection; None where there is one already."""
        if self.basis is not None:
            return None
        return replace(self, shift=shift, basis=basis, unit=unit)

    def _rows(self, given: np.ndarray, dtype: str) -> np.ndarray:
        if given.shape[1:] != self.shape:
            flat = given.reshape(len(given), -1)
            if flat.shape[1:] != self.shape:
                raise DataError(
                    f"samples have shape [n, {', '.join(map(str, given.shape[1:]))}]; expected "
                    f"{self.expected}"
                )
            given = flat
        refuse_rows(~np.isfinite(given.reshape(len(given), -1)).all(1), "hold NaN or infinity")
        with np.errstate(over="ignore"):
            values = given.astype(dtype)
            rows = values.reshape(len(values), -1)
            long = ~np.isfinite(np.einsum("ij,ij->i", rows, rows))
        refuse_rows(long, f"are too large for {dtype}, which does not hold their squared lengths")
        return values

    def _features(self, images: np.ndarray, context: Context) -> np.ndarray:
        import torch

        from metaforge.embedding import feature_blocks, rows_of

        backbone = _backbone(json.dumps(self.backbone), self.backbone_fingerprint, context)
        if not len(images):
            return np.empty((0, *self.shape), dtype="float32")
        numbers = torch.from_numpy(scaled(images, "float32"))
        with context.progress("computing features", len(images)) as advance:
            found = []
            read, device = rows_of(numbers), context.device
            for block in feature_blocks(read, len(images), backbone, device):
                found.append(block.numpy())
                advance(len(block))
        return np.concatenate(found)

    def _normalized(self, values: np.ndarray) -> np.ndarray:
        if self.normalize == "l2":
            refuse_rows(~values.any(1), "are all zeros, which have no direction (normalize: l2)")
            return unit_rows(values)
        if self.normalize == "standardize":
            assert self.mean is not None
            assert self.sd is not None
            return standardized(values, self.mean, self.sd)
        return values

    def _projected(self, values: np.ndarray) -> np.ndarray:
        if self.basis is None:
            return values
        assert self.shift is not None
        flat = values.reshape(len(values), -1)
        dtype = flat.dtype
        found = (flat - self.shift.astype(dtype)) @ self.basis.astype(dtype)
        return unit_rows(found) if self.unit else found

    def facts(self) -> dict[str, Any]:
        """All but the arrays, for JSON."""
        own = {name: value for name, value in vars(self).items() if name not in _ARRAYS}
        return own | {
            "shape": list(self.shape),
            "images": asdict(self.images) if self.images else None,
            "backbone": dict(self.backbone) if self.backbone else None,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Those of ``mean``, ``sd``, ``shift`` and ``basis`` that there are."""
        found = ((name, getattr(self, name)) for name in _ARRAYS)
        return {name: value for name, value in found if value is not None}

    @classmethod
    def of(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Preprocess:
        """What ``facts`` and ``arrays`` gave."""
        from metaforge.image_files import ImageForm

        images = facts["images"] and ImageForm(**facts["images"])
        own: dict[str, Any] = {**facts, "shape": tuple(facts["shape"]), "images": images, **arrays}
        if columns := own.get("columns"):
            own["columns"] = tuple(columns)
        return cls(**own)


def in_form(images: np.ndarray, form: ImageForm) -> np.ndarray | None:
    """[n, c, height, width] of bytes [n, h, w], [n, 1 or 3, h, w] or [n, h, w, 1 or 3], resized and
    converted as files are; None for another shape."""
    from PIL import Image

    from metaforge.image_files import formed

    if images.ndim == 4 and images.shape[1] in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim != 3 and not (images.ndim == 4 and images.shape[3] == 3):
        return None
    made = [formed(Image.fromarray(np.ascontiguousarray(one)), form) for one in images]
    return np.stack(made) if made else np.empty((0, *form.shape), np.uint8)


def scaled(images: np.ndarray, dtype: str) -> np.ndarray:
    """Images as numbers in [0, 1]: of bytes divided by 255, of truth values 0 and 1.

    Raises ``DataError`` for other numbers that are not finite, or beyond [0, 1].
    """
    if images.dtype == np.uint8:
        return images.astype(dtype) * np.asarray(1 / 255, dtype=dtype)
    if images.dtype.kind == "b":
        return images.astype(dtype)
    flat = images.reshape(len(images), -1)
    fit = (flat >= 0) & (flat <= 1)
    refuse_rows(
        ~fit.all(axis=1),
        "are images with numbers beyond [0, 1], or NaN: give bytes (uint8), or divide",
    )
    return images.astype(dtype)


def unit_rows(values: np.ndarray) -> np.ndarray:
    """Each row of [n, p] by its length; rows of zeros stay."""
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length > 0, length, 1).astype(values.dtype)


def standardized(values: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """``(values - mean) / sd`` in float64, given in the dtype of values; a column whose sd is 0
    is centred alone."""
    return ((values - mean) / np.where(sd > 0, sd, 1.0)).astype(values.dtype)


class BrokenSamples(DataError):
    """Some samples cannot be used; ``rows`` are their numbers, ``why`` what is wrong."""

    def __init__(self, rows: list[int], why: str):
        self.rows, self.why = rows, why
        shown = ", ".join(map(str, rows[:_NAMED])) + (", ..." if len(rows) > _NAMED else "")
        super().__init__(f"{len(rows)} samples {why}: rows {shown}")


def refuse_rows(bad: Any, why: str) -> None:
    """``BrokenSamples`` for the rows marked in ``bad`` [n], if any."""
    if bad.any():
        raise BrokenSamples(np.flatnonzero(bad).tolist(), why)


@lru_cache(maxsize=4)
def _backbone(choice: str, fingerprint: str | None, context: Context) -> Backbone:
    """The backbone that ``choice``, JSON, names. ``PluginError`` for one of other weights."""
    from metaforge.options import Choice
    from metaforge.registry import create_choice

    chosen = Choice.model_validate_json(choice)
    made: Backbone = create_choice("backbone", chosen, context)
    if fingerprint not in (None, made.fingerprint):
        raise PluginError(
            f"backbone {chosen.use}: the weights here ({made.fingerprint[:12]}) are not those that "
            f"made the learner's features ({str(fingerprint)[:12]}): put those back"
        )
    return made
