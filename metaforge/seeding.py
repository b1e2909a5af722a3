"""One root seed, named streams.

Two kinds of randomness, both free of global state and of order:

* ``generator(root, *names)`` gives a torch generator for one named use
  (``generator(seed, "condition", target, step)``).
* ``bits(key, *counters)`` is a pure function from counters to 64 random bits, for
  tables addressed by index: entry i never depends on which others were asked for.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derive(root: int, *names: str | int) -> int:
    """A 63-bit seed for the stream ``names`` under the root seed."""
    text = "/".join([str(root), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(root: int, *names: str | int) -> torch.Generator:
    """A CPU torch generator for the stream ``names`` under the root seed."""
    import torch

    return torch.Generator().manual_seed(derive(root, *names))


def _mix(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection on 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bits(key: int, *counters: np.ndarray | int) -> np.ndarray:
    """Random 64-bit integers, one for each point of the broadcast counters.

    ``bits(key, tasks[:, None], classes[None])`` has shape ``[tasks, classes]``; every
    entry is a function of ``key`` and its own two counters alone.
    """
    with np.errstate(over="ignore"):
        state = _mix(np.asarray(key, dtype=np.uint64) + _GOLDEN)
        for counter in counters:
            state = _mix(state + _GOLDEN * (np.asarray(counter).astype(np.uint64) + np.uint64(1)))
    return state


def uniform(key: int, *counters: np.ndarray | int) -> np.ndarray:
    """Like ``bits``, as float64 in [0, 1)."""
    return (bits(key, *counters) >> np.uint64(11)) * 2.0**-53
