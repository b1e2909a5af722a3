"""A door: what takes files or texts from outside, with valid inputs to change.

An input is a folder's files by relative name. What a door raises on it must be a
``MetaforgeError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

Files = dict[str, bytes]
Mutate = Callable[[bytes, Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Door:
    """``seeds(folder)`` gives valid inputs, for which ``folder`` is empty and may be used;
    ``enter`` reads the input in a folder; ``share`` is of all inputs; ``reads_anywhere``: a path
    in the input is the user's word. ``how`` changes files by how their names end."""

    name: str
    seeds: Callable[[Path], list[Files]]
    enter: Callable[[Path], object]
    how: dict[str, Mutate]
    share: float
    reads_anywhere: bool = False
    slow: float = 4.0

    def mutated(self, seeds: Sequence[Files], rng: Random) -> Files:
        """One of the seeds with a file changed, seldom two."""
        files = dict(rng.choice(seeds))
        names = [name for name in files if self._how(name)]
        for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2)))):
            how = self._how(name)
            assert how is not None
            others = [other[name] for other in seeds if name in other]
            files[name] = how(files[name], rng, others)
        return files

    def _how(self, name: str) -> Mutate | None:
        return next((how for end, how in self.how.items() if name.endswith(end)), None)
