"""The processes (ranks) that share a run, as its stages see them.

``Ranks`` itself is one process alone, which shares with nobody; ``metaforge.group.Group`` is
the same for several. Stages go through these few methods, so that there is one training loop
and one evaluation for both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from metaforge import environment, workers
from metaforge.errors import Interrupted

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Share:
    """A rank's part of n positions: ``count`` of them, from ``start`` on."""

    start: int
    count: int

    @property
    def rows(self) -> slice:
        """The positions to compute with. A rank that has none takes the first, whose result it
        leaves out: so it takes part in what all ranks do together, with tensors like theirs."""
        return slice(self.start, self.start + self.count) if self.count else slice(0, 1)


class Ranks:
    """One process alone. Every method says what it means for several."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes, prints and tells observers."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device that this rank computes on. Raises ``RecipeError`` where there is none."""
        return environment.pick_device(name)

    def share(self, n: int) -> Share:
        """This rank's part of n positions: contiguous, the first ranks have one more."""
        least, more = divmod(n, self.size)
        return Share(self.rank * least + min(self.rank, more), least + (self.rank < more))

    def mean(self, own: Tensor, n: int) -> Tensor:
        """Of the mean of n values, the part of this rank's ``own``; the parts sum to it."""
        return own.mean()

    def whole(self, own: Tensor, n: int) -> Tensor:
        """[n]: every rank's values in order; gradients flow to this rank's ``own`` alone."""
        return own

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor summed over ranks: the same bits on all of them."""
        return list(tensors)

    def from_first(
        self, make: Callable[[], Answer], meanwhile: Callable[[], object] | None = None
    ) -> Answer:
        """What rank 0 makes, or the ``MetaforgeError`` that it raises, on every rank.

        The others do ``meanwhile``, then wait, however long it takes.
        """
        return make()

    def ordered(
        self, job: Callable[[int], Answer], positions: Sequence[int], workers_: int
    ) -> Iterator[Answer]:
        """On rank 0, ``job(p)`` for each position, in their order; rank r does every K-th of
        them. The others do their part and yield nothing.

        An error of a job is raised on rank 0, at its position.
        """
        return workers.ordered(job, positions, workers_)

    def leader_first(self) -> AbstractContextManager[None]:
        """The body runs on one rank of each machine before it does on the others there, who
        then find in the cache what it left."""
        return nullcontext()

    def agree(self, facts: Callable[[], Mapping[str, str]], where: str) -> None:
        """Raise ``PluginError`` unless all ranks hold the same facts."""

    def verdict(self, error: BaseException) -> BaseException:
        """What this rank ends with, for an error that ends the run: the error itself where it
        is this rank that tells of it, ``Followed`` on the others; ``Interrupted`` for a stop."""
        return Interrupted("stopped") if isinstance(error, KeyboardInterrupt) else error


ALONE = Ranks()


def digest(tensors: Iterable[Tensor]) -> str:
    """Names the values of tensors, to the last bit."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
