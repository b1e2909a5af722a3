"""The task source ``torch``: that of ``arrays``, over the samples of a data set of Python."""

from __future__ import annotations

from typing import Any

from metaforge.class_options import ClassOptions
from metaforge.components import Context
from metaforge.errors import DataError, said_by
from metaforge.own_data import gathered
from metaforge.pooled import PooledTasks
from metaforge_arrays.options import ArraysOptions
from metaforge_arrays.source import load as load_arrays
from metaforge_torch.options import TorchOptions

_SHARED = (*ClassOptions.model_fields, "augment", "normalize", "group", "sample_group")


def load(options: TorchOptions, context: Context) -> PooledTasks:
    """N-way tasks over the samples, which are read once, in order. Raises ``DataError`` as
    ``gathered`` and ``arrays`` do, and where splits are given twice."""
    with said_by("torch"):
        own: dict[str, Any] = gathered(options.dataset, context)
        if "split" in own and "split" in options.model_fields_set:
            raise DataError("split: there is a data set for each split already; leave it out")
    shared = {name: getattr(options, name) for name in _SHARED if name in options.model_fields_set}
    with said_by("torch", instead_of="arrays"):
        return load_arrays(ArraysOptions(**shared | own), context)
