"""The task source ``arrays``: tasks over the rows of x."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from metaforge.array_files import Arrays
from metaforge.components import Context
from metaforge.pooled import PooledTasks
from metaforge.preprocess import Preprocess
from metaforge.storage import DiskRows
from metaforge.tasks import View
from metaforge_arrays.disk import on_disk
from metaforge_arrays.inputs import Reader, images_preprocess
from metaforge_arrays.layout import (
    completed,
    make_pools,
    shared_rows,
    task_pools,
    training_rows,
)
from metaforge_arrays.options import ArraysOptions


def load(
    options: ArraysOptions, context: Context, *, columns: tuple[str, ...] | None = None
) -> PooledTasks:
    """N-way tasks over the rows of x; the class groups of tasks that are drawn within one are
    their groups (-1 for the others). ``columns`` are the names of x's, where they have names.

    Raises ``DataError`` for whatever is missing, damaged, not finite or too small. Columns
    that are constant are reported.
    """
    arrays = Arrays(options.path)
    options = completed(options, arrays)
    pools = make_pools(options, arrays)
    reader = Reader(options, arrays, training_rows(pools), context)
    x: Tensor | DiskRows
    preprocess: dict[View, Preprocess | None]
    if options.storage == "disk":
        x, scale = on_disk(options, arrays, context)
        preprocess = {"input": images_preprocess(x.shape[1:]) if x.dtype == np.uint8 else None}
    else:
        read = reader.x()
        x, scale, preprocess = torch.from_numpy(read.values), read.scale, {"input": read.preprocess}
        if line := shared_rows(read.values, pools):
            context.report(line)
    if columns is not None and (raw := preprocess["input"]) is not None:
        preprocess["input"] = replace(raw, columns=columns)
    features = reader.features()
    names = options.sample_names
    if features is not None:
        preprocess["features"] = features.preprocess
    return PooledTasks(
        x,
        task_pools(options, arrays, pools),
        options.sizes(),
        seed=context.seed,
        name="in memory" if arrays.path is None else arrays.path.name,
        features=None if features is None else torch.from_numpy(features.values),
        scale=scale,
        group_by="class_group" if options.within else "none",
        licence=options.licence,
        device=context.device,
        dtype=getattr(torch, context.dtype),
        augment=options.augment,
        sample_names=None if names is None else arrays.get("sample_names", names).tolist(),
        preprocess=preprocess,
    )
