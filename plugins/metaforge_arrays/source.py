"""The task source ``arrays``: tasks over the rows of x."""

from __future__ import annotations

import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.pooled import PooledTasks
from metaforge.storage import DiskRows
from metaforge_arrays.disk import on_disk
from metaforge_arrays.files import Arrays
from metaforge_arrays.inputs import Reader
from metaforge_arrays.layout import make_pools, task_pools, training_rows
from metaforge_arrays.options import ArraysOptions


def load(options: ArraysOptions, context: Context) -> PooledTasks:
    """N-way tasks over the rows of x; the class groups of tasks that are drawn within one are
    their groups (-1 for the others).

    Raises ``DataError`` for whatever is missing, damaged, not finite or too small. Columns
    that are constant are reported.
    """
    arrays = Arrays(options.path)
    pools = make_pools(options, arrays)
    reader = Reader(options, arrays, training_rows(pools), context)
    x: Tensor | DiskRows
    if options.storage == "disk":
        x, scale = on_disk(options, arrays, context)
    else:
        values, scale = reader.x()
        x = torch.from_numpy(values)
    features = reader.features()
    names = options.sample_names
    return PooledTasks(
        x,
        task_pools(options, arrays, pools),
        options.sizes(),
        seed=context.seed,
        name="in memory" if arrays.path is None else arrays.path.name,
        features=None if features is None else torch.from_numpy(features),
        scale=scale,
        group_by="class_group" if options.within else "none",
        licence=options.licence,
        device=context.device,
        dtype=getattr(torch, context.dtype),
        augment=options.augment,
        sample_names=None if names is None else arrays.get("sample_names", names).tolist(),
    )
