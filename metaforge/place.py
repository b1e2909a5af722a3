"""Which of several processes this one is, where torchrun started it. Torch-free."""

from __future__ import annotations

import os
from dataclasses import dataclass

from metaforge.errors import RecipeError

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """Rank ``rank`` of ``size``; on its machine, number ``local_rank`` of ``local_size``."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def machine(self) -> int:
        """The rank of the first process on this machine, which names it."""
        return self.rank - self.local_rank


def place() -> Place | None:
    """This process's place by the variables that torchrun sets; None for one process alone.

    Raises ``RecipeError`` where ``WORLD_SIZE`` says several and another variable is missing
    or makes no sense.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return None
    if missing := [name for name in _NAMES if not os.environ.get(name)]:
        raise RecipeError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, but {', '.join(missing)} not set: start "
            "several processes by torchrun --nproc-per-node K -m metaforge run ..., or unset "
            "WORLD_SIZE"
        )
    try:
        rank, size, local_rank, local_size = (int(os.environ[name]) for name in _NAMES[:4])
    except ValueError:
        rank = size = local_rank = local_size = -1
    if not (0 <= local_rank < local_size <= size and local_rank <= rank < size):
        found = ", ".join(f"{name}={os.environ[name]}" for name in _NAMES[:4])
        raise RecipeError(f"these variables name no process among several: {found}; use torchrun")
    return Place(rank, size, local_rank, local_size)


def idle() -> bool:
    """Whether another process does what one alone can do: under torchrun, the first."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"
