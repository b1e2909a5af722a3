"""How many threads the one large computation of a run may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Threads at most, whatever the environment says.
_MOST = 1024


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def every_core() -> Iterator[None]:
    """PyTorch computes on all cores, or on as many as ``OMP_NUM_THREADS`` says, as SciPy's LAPACK
    does; then on as many as before."""
    before = torch.get_num_threads()
    # a list has the number of each level of nesting; what is no number says nothing
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    torch.set_num_threads(min(int(said), _MOST) if said.isdecimal() and int(said) else cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
