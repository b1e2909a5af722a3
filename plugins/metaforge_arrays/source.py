"""The task source ``arrays``: tasks over the rows of x."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.pooled import PooledTasks
from metaforge_arrays.files import Arrays
from metaforge_arrays.inputs import as_float, check_finite, constant_columns, normalize, read_x
from metaforge_arrays.layout import make_pools
from metaforge_arrays.options import ArraysOptions


def load(options: ArraysOptions, context: Context) -> PooledTasks:
    """N-way tasks over the rows of x; the class groups of tasks that are drawn within one are
    their groups (-1 for the others).

    Raises ``DataError`` for whatever is missing, damaged, not finite or too small. Columns
    that are constant are reported.
    """
    arrays = Arrays(options.path)
    pools = make_pools(options, arrays)
    train = np.unique(np.concatenate([rows for pool in pools["train"] for rows in pool.members]))

    def clean(option: str, values: np.ndarray) -> Tensor:
        check_finite(option, values)
        if line := constant_columns(option, values):
            context.report(line)
        return torch.from_numpy(normalize(option, values, train, options.normalize))

    x, scale = read_x(arrays.get("x", options.x), options, context.dtype)
    features = None
    if options.features is not None:
        given = arrays.get("features", options.features)
        features = clean("features", as_float(given, context.dtype))
    elif x.ndim > 2 and options.normalize != "none":
        raise DataError(
            f"arrays: normalize: {options.normalize} is for features [n, p], but x has shape "
            f"{list(x.shape)}; set normalize: none"
        )
    return PooledTasks(
        clean("x", x) if x.ndim == 2 else torch.from_numpy(x),
        pools,
        options.sizes(),
        seed=context.seed,
        name="in memory" if arrays.path is None else arrays.path.name,
        features=features,
        scale=scale,
        group_by="class_group" if options.within else "none",
        licence=options.licence,
        device=context.device,
        dtype=getattr(torch, context.dtype),
    )
