"""The law of pictures: a source shows images of a task's classes, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metaforge.pictures import is_image

if TYPE_CHECKING:
    from metaforge.testing.datasets import Drawn

#: Tasks looked at.
_TASKS = 3


def check_pictures(drawn: Drawn) -> None:
    """``pictures`` gives None, or bytes [ways, c, h, w] of one or three channels; asked again, the
    same."""
    source, law = drawn.source, "law of pictures"
    for task in list(drawn.ids)[:_TASKS]:
        found = source.pictures(drawn.split, task)
        if found is None:
            continue
        what = f"{law}: task {task} of {drawn.split}"
        assert isinstance(found, np.ndarray), f"{what}: {type(found).__name__}, expected an array"
        assert found.dtype == np.uint8, f"{what}: {found.dtype}, expected uint8"
        ways = source.shape.outputs
        fits = found.ndim == 4 and len(found) == ways and is_image(found.shape[1:])
        assert fits, f"{what}: shape {list(found.shape)}, expected [{ways}, 1 or 3, height, width]"
        again = source.pictures(drawn.split, task)
        assert again is not None, f"{what}: none the second time"
        assert np.array_equal(found, again), f"{what}: other ones each time"
