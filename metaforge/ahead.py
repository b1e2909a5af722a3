"""The next step's tasks, read from disk while this step computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """``make(step)`` of one step after the other, each begun by a thread when the one before it
    is taken. What is taken is what ``make`` gives, whatever was begun; an error comes at its turn.

    A context manager: at its end no thread is left, as processes cannot be forked beside one.
    """

    def __init__(self, make: Callable[[int], T], until: int):
        self._make, self._until = make, until
        self._pool = ThreadPoolExecutor(1, "metaforge-ahead")
        self._begun: tuple[int, Future[T]] | None = None

    def take(self, step: int) -> T:
        begun, self._begun = self._begun, None
        ready = begun is not None and begun[0] == step  # not the first, nor one done again
        found = begun[1].result() if begun and ready else self._make(step)
        if step + 1 < self._until:
            self._begun = step + 1, self._pool.submit(self._make, step + 1)
        return found

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()
