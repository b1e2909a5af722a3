"""What an npz file of features says of the backbone that made them. numpy alone.

Such a file holds ``X [n, p]``, ``y [n]`` class names where there are labels, ``files``, ``split``
and ``group`` where there are such, and ``metaforge``: JSON with the backbone, the fingerprint of
its weights and the form of the images.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np

from metaforge.errors import DataError

#: The array of features, and the one that says what made them.
EMBEDDED, ORIGIN = "X", "metaforge"


class Named(Protocol):
    """The arrays of a file, by name."""

    names: tuple[str, ...]

    def get(self, option: str, value: Any) -> np.ndarray: ...


def embedded(arrays: Named) -> dict[str, Any] | None:
    """``images``, ``backbone`` and ``backbone_fingerprint`` of a ``Preprocess``; None for a file
    of other origin. Raises ``DataError`` where the file says it in a form that is not read."""
    if ORIGIN not in arrays.names:
        return None
    from metaforge.image_files import ImageForm

    try:
        said = json.loads(str(arrays.get(ORIGIN, ORIGIN)[()]))
        return {
            "images": ImageForm(**said["images"]),
            "backbone": {"use": str(said["backbone"]["use"]), **said["backbone"]},
            "backbone_fingerprint": str(said["fingerprint"]),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"array {ORIGIN!r} does not say what made the features ({error!r}): make the file "
            "anew with metaforge embed, or leave this array out"
        ) from error
