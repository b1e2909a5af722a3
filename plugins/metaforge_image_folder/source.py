"""The task source ``image_folder``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embedding import views
from metaforge.errors import DataError, said_by
from metaforge.image_form import Wanted
from metaforge.image_index import ImageIndex, index_images
from metaforge.image_listing import Listing
from metaforge.pooled import PooledTasks
from metaforge.storage import DiskRows
from metaforge_image_folder.checks import NAME, faults, task_pools, twin_faults
from metaforge_image_folder.layout import divided, listed
from metaforge_image_folder.options import ImageFolderOptions


def load(options: ImageFolderOptions, context: Context, backbone: Backbone | None) -> PooledTasks:
    """N-way tasks over the images, decoded at the first use and read from the cache after that.

    Raises ``DataError`` with everything wrong with the folder; if that is nothing, with every
    image that cannot be read; if that is none, with those that are in several classes.
    """
    with said_by(NAME):
        listing = listed(options)
        _refuse(faults(options, listing))
        index = index_images(listing, _wanted(options, backbone), context)
        _refuse(twin_faults(options, listing, index.twins))
        for line in _remarks(listing, index):
            context.report(f"{NAME}: {line}")
        return _tasks(options, context, backbone, listing, index)


def _wanted(options: ImageFolderOptions, backbone: Backbone | None) -> Wanted:
    """The form that is asked for; where nobody but a backbone sees the images, its own."""
    wanted = options.wanted
    if backbone is None or backbone.images is None or options.sees_images:
        return wanted
    form = backbone.images
    return Wanted(wanted.channels or form.channels, wanted.size or (form.height, form.width))


def _refuse(lines: list[str]) -> None:
    if lines:
        raise DataError("\n".join(lines))


def _remarks(listing: Listing, index: ImageIndex) -> list[str]:
    lines = list(listing.remarks)
    if index.twins:
        count = sum(map(len, index.twins)) - len(index.twins)
        first = " = ".join(index.twins[0])
        lines.append(f"{listing.root}: {count:,} images are copies of others, first {first}")
    return lines


def _tasks(
    options: ImageFolderOptions,
    context: Context,
    backbone: Backbone | None,
    listing: Listing,
    index: ImageIndex,
) -> PooledTasks:
    images: Tensor | DiskRows
    if options.storage == "disk" or not options.sees_images:
        images = DiskRows(index.path, index.digest)
    else:
        images = torch.from_numpy(np.load(index.path))
    seen = views(images, index.digest, backbone, options, context)
    return PooledTasks(
        seen.x,
        task_pools(options, listing, divided(options, listing)),
        options.sizes(),
        seed=context.seed,
        name=listing.root.name,
        features=seen.features,
        scale=seen.scale,
        group_by="class_group" if options.within else "none",
        licence=options.licence,
        device=context.device,
        dtype=getattr(torch, context.dtype),
        augment=options.augment,
        images=images,
        preprocess=seen.preprocess,
        sample_names=listing.files,
    )
