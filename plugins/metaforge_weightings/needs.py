"""What each solver holds of a bank, asked for before the long work starts."""

from __future__ import annotations

import torch

from metaforge import memory
from metaforge.contracts import TARGET_BLOCK
from metaforge.gram import matrix_memory

#: Blocks of targets that share a pass over K where every pass computes it again.
BLOCKS = 4
#: Vectors of N numbers that such a solver holds for each of their targets.
_VECTORS = 12
#: Arrays of N r numbers at the peak of a singular value decomposition of the features.
_COPIES = 3


#: Landmarks fewer than this are no advice.
_FEWEST = 50


def _round(count: int) -> int:
    """Down to two digits, as free memory comes and goes."""
    digits = 10 ** max(0, len(str(count)) - 2)
    return count // digits * digits


def needed(
    solver: str, n_tasks: int, rank: int, device: torch.device, kernel_name: str
) -> tuple[int, str]:
    """Bytes, and of what."""
    vectors = 8 * n_tasks * TARGET_BLOCK * BLOCKS * _VECTORS
    features, what = 8 * n_tasks * rank, f"solver: {solver} for bank.size: {n_tasks} tasks"
    match solver:
        case "nystrom":
            return _COPIES * features, what
        case "cg":
            return max(_COPIES * features, features + vectors), what
        case "float32":
            size, _, matrix = matrix_memory(n_tasks, device, kernel_name, itemsize=4)
            return size + vectors, f"solver: float32, {matrix}"
        case _:
            size, _, matrix = matrix_memory(n_tasks, device, kernel_name)
            return size, matrix


def require(solver: str, n_tasks: int, rank: int, device: torch.device, kernel_name: str) -> None:
    """``DataError`` where the solver's memory is not there, with the solvers that fit."""
    size, what = needed(solver, n_tasks, rank, device, kernel_name)
    free = memory.available(device)
    fitting = []
    for other in ("float32", "nystrom", "cg"):
        takes, _ = needed(other, n_tasks, rank, device, kernel_name)
        if free is not None and takes <= free and takes < size:
            fitting.append(f"{other} ({memory.gigabytes(takes)})")
    advice = f"weighting.solver: {' or '.join(fitting)}, " if fitting else ""
    landmarks = (free or 0) // (_COPIES * 8 * n_tasks)
    if not fitting and landmarks >= _FEWEST:
        advice = f"weighting.solver: nystrom with weighting.rank: {_round(landmarks)} or less, "
    memory.require(
        size,
        device,
        what,
        f"take {advice}a smaller bank.size, kernel: {{use: linear}} (of finite rank, solved "
        "without the matrix) or weighting: {use: uniform}",
    )
