"""Ink on paper, or light on dark: images brought to the polarity that a backbone was trained on."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def ink_is_one(images: Tensor, invert: bool | Literal["auto"]) -> Tensor:
    """Images [n, c, h, w] in [0, 1] whose ground is dark: ``1 - x`` of those that are not.

    ``auto`` decides for each image by the mean of the pixels of its border, one pixel wide:
    above 1/2 it is bright ground, and the image is inverted.
    """
    if invert is False:
        return images
    if invert is True:
        return 1 - images
    bright = border(images).mean(1) > 0.5
    return torch.where(bright.view(-1, 1, 1, 1), 1 - images, images)


def border(images: Tensor) -> Tensor:
    """[n, k]: the outermost pixels of images [n, c, h, w]."""
    edges = [images[:, :, 0], images[:, :, -1], images[:, :, 1:-1, 0], images[:, :, 1:-1, -1]]
    return torch.cat([edge.flatten(1) for edge in edges], 1)
