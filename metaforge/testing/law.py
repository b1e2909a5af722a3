"""A law: a name and a check that raises ``AssertionError`` where it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Law(NamedTuple):
    name: str
    check: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def check_all(laws: Iterable[Law]) -> None:
    """Check them in order, up to the first that is broken."""
    for law in laws:
        law.check()
