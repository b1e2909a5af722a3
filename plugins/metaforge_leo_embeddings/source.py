"""The task source ``leo_embeddings``."""

from __future__ import annotations

import torch

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.pooled import PooledTasks
from metaforge_leo_embeddings.features import constant_columns, load_features
from metaforge_leo_embeddings.layout import LICENCE, pools, read_tables
from metaforge_leo_embeddings.options import LeoEmbeddingsOptions


def load(options: LeoEmbeddingsOptions, context: Context) -> PooledTasks:
    """N-way tasks over the features of all three files; without groups, as the files have none.

    Row numbers run through the train, val and test file. Raises ``DataError`` with every line
    of ``read_tables`` or ``load_features``, or if tasks of this size cannot be drawn. Columns
    that are constant are reported.
    """
    tables, found = read_tables(options)
    if not found:
        values, found = load_features(tables, options.normalize, context.dtype)
    if found:
        raise DataError("\n".join(found))
    if line := constant_columns(tables):
        context.report(line)
    return PooledTasks(
        torch.from_numpy(values),
        pools(tables),
        options.sizes(),
        seed=context.seed,
        name=f"LEO embeddings, {options.subfolder.as_posix()}",
        licence=LICENCE,
        device=context.device,
        dtype=getattr(torch, context.dtype),
    )
