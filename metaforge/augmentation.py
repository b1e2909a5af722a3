"""Images turned, cropped and mirrored as tasks are drawn, a whole batch by one gather.

Which class is turned is its row's number (``metaforge.turned``). How a sample of a
meta-training task is cropped and mirrored depends on (seed, task, place in the task) alone, so
that a task is the same whenever it is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metaforge.image_options import Augment
from metaforge.seeding import derive, uniform
from metaforge.turned import TURNS

#: Images that are moved at a time: an index of 8 bytes for each of their pixels is made.
_BLOCK = 4096


class Moves(NamedTuple):
    """How k images are moved: where a crop starts in the padded image [k, 2] (down, right), and
    whether it is mirrored then [k]."""

    start: Tensor
    mirrored: Tensor


def draw(augment: Augment, seed: int, side: str, ids: np.ndarray, places: int) -> Moves:
    """Of ``places`` samples of each of the tasks ``ids``, task by task; ``side`` is ``support``
    or ``query``. Crops are uniform over the (2 crop + 1)^2 that there are."""
    key = derive(seed, "augment", side)
    unit = uniform(key, ids[:, None, None], np.arange(places)[:, None], np.arange(3))
    unit = unit.reshape(-1, 3)
    start = (unit[:, :2] * (2 * augment.crop + 1)).astype(np.int64)
    mirrored = (unit[:, 2] < 0.5) & augment.flip
    return Moves(torch.from_numpy(start), torch.from_numpy(mirrored))


def moved(images: Tensor, turns: Tensor | None, moves: Moves | None, crop: int) -> Tensor:
    """[k, c, h, w]: images turned by ``turns`` [k] quarter turns counter-clockwise, padded by
    ``crop`` zeros, cropped to their size and mirrored."""
    parts = []
    for first in range(0, len(images), _BLOCK):
        some = slice(first, first + _BLOCK)
        own = None if moves is None else Moves(*(part[some] for part in moves))
        parts.append(_moved(images[some], None if turns is None else turns[some], own, crop))
    return torch.cat(parts) if parts else images


def _moved(images: Tensor, turns: Tensor | None, moves: Moves | None, crop: int) -> Tensor:
    """Every pixel is looked up where it comes from: pixels are numbered row by row."""
    k, channels, height, width = images.shape
    source, inside = None, None
    if moves is not None:
        source, inside = _window(moves, height, width, crop)
    if turns is not None:
        table = torch.arange(height * width, device=images.device).view(height, width)
        table = torch.stack([torch.rot90(table, turn).flatten() for turn in TURNS])[turns]
        source = table if source is None else table.gather(1, source)
    if source is None:
        return images
    index = source[:, None].expand(k, channels, height * width)
    found = images.flatten(2).gather(2, index).view_as(images)
    if inside is None or not crop:
        return found
    return found.masked_fill(~inside.view(k, 1, height, width), 0)


def _window(moves: Moves, height: int, width: int, crop: int) -> tuple[Tensor, Tensor]:
    """The pixel [k, h w] that each one of a crop comes from, and whether it is in the image."""
    start, mirrored = moves
    down = torch.arange(height, device=start.device) + start[:, :1] - crop
    across = torch.arange(width, device=start.device).expand(len(start), width)
    across = torch.where(mirrored[:, None], width - 1 - across, across) + start[:, 1:] - crop
    in_height, in_width = (down >= 0) & (down < height), (across >= 0) & (across < width)
    inside = in_height[:, :, None] & in_width[:, None]
    pixels = down.clamp(0, height - 1)[:, :, None] * width + across.clamp(0, width - 1)[:, None]
    return pixels.flatten(1), inside.flatten(1)
