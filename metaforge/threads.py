"""How many threads the one large computation of a run may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def every_core() -> Iterator[None]:
    """PyTorch computes on all cores, as SciPy's LAPACK does unless ``OMP_NUM_THREADS`` is set;
    then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or cores()))
    try:
        yield
    finally:
        torch.set_num_threads(before)
