"""What ranks other than the first have in the place of a run's folder: they write nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metaforge.records import Lines
from metaforge.rundir import RunDir


class Onlooker(RunDir):
    """A run's folder that rank 0 holds: here it has a path, and no file."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def refuse_other_data(self, fingerprint: str) -> None: ...

    def status(self, state: str, stage: str, **more: Any) -> None: ...

    def lines(self, name: str) -> Lines:
        return _Unwritten(self.path / name)

    def log(self, line: str) -> None: ...


class _Unwritten(Lines):
    """Lines that begin empty and are kept in memory alone."""

    def __init__(self, path: Path):
        self.path, self.records, self.dropped = path, [], ""

    def append(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def replace(self, records: Sequence[dict[str, Any]]) -> None:
        self.records = list(records)
