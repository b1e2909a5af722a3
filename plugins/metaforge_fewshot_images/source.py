"""The task sources of the data sets that the field compares on."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.embedding import views
from metaforge.memory import require
from metaforge.pooled import PooledTasks
from metaforge.storage import DiskRows
from metaforge_arrays.source import load as load_arrays
from metaforge_fewshot_images.content import Content
from metaforge_fewshot_images.features import as_arrays
from metaforge_fewshot_images.find import find
from metaforge_fewshot_images.kept import in_memory, on_disk
from metaforge_fewshot_images.known import KNOWN
from metaforge_fewshot_images.options import BenchmarkOptions
from metaforge_fewshot_images.pools import task_pools


def load(
    options: BenchmarkOptions, context: Context, backbone: Backbone | None = None
) -> PooledTasks:
    """N-way tasks over the images (or features) of a published data set, by its own splits; the
    groups of tasks that are drawn within one are their groups (-1 for the others).

    Raises ``DataError`` with every fault of the files, with how to place them where they are not
    there, and where tasks of this size cannot be drawn.
    """
    if options.is_features:
        return load_arrays(as_arrays(options), context)
    content = find(options)
    if content.lacks:
        context.report(f"{options.NAME}: {content.places[0]}: {'; '.join(content.lacks)}")
    images, digest = _images(options, content, context)
    seen = views(images, digest, backbone, options, context)
    return PooledTasks(
        seen.x,
        task_pools(options, content),
        options.sizes(),
        seed=context.seed,
        name=options.NAME + (f", in part: {content.counted()}" if content.lacks else ""),
        features=seen.features,
        scale=seen.scale,
        group_by="class_group" if options.within else "none",
        licence=KNOWN[options.NAME].licence,
        device=context.device,
        dtype=getattr(torch, context.dtype),
        augment=options.augment,
        images=images,
        sample_names=content.names or None,
        preprocess=seen.preprocess,
    )


def _images(
    options: BenchmarkOptions, content: Content, context: Context
) -> tuple[Tensor | DiskRows, str]:
    """The images and their digest, which is of their bytes whatever the storage."""
    if options.storage == "disk":
        rows = on_disk(content, context)
        return rows, rows.digest
    size = len(content) * prod(content.form.shape)
    require(size, torch.device("cpu"), f"{options.NAME}: its array of images", "set storage: disk")
    images, digest = in_memory(content, context)
    return torch.from_numpy(images), digest
