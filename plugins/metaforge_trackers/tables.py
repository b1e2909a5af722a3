"""The CSV tracker: a run's figures as tables that any program reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaforge.contracts import Tracker
from metaforge.records import write_atomic
from metaforge_trackers.figures import of_target


class Csv(Tracker):
    """``metrics.csv``, a line for each recorded step of meta-training, and ``targets.csv``, a line
    for each target: its score before conditioning and after, by arm, in the metric's own unit.

    Both are whole at every moment, and hold a step or a target once however often the run was
    resumed.
    """

    def run_started(self, run_dir: Path, recipe: Any) -> None:
        self._metrics = _Table(run_dir / "metrics.csv", "step")
        self._targets = _Table(run_dir / "targets.csv", "target")

    def meta_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.add(step, metrics)

    def target_evaluated(self, record: Mapping[str, Any]) -> None:
        named = {"task_id": record["task_id"], "group": record["group"]}
        self._targets.add(record["target"], {**named, **of_target(record)})


class _Table:
    """Rows by a number, kept in a file that is whole after each of them.

    A line is added to the file where it can be; a row that comes again (the run was resumed
    before it) or has a new column makes the file anew.
    """

    def __init__(self, path: Path, key: str):
        self._path, self._key = path, key
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self._rows = {int(row[key]): row for row in csv.DictReader(io.StringIO(whole, newline=""))}
        self._columns = list(next(iter(self._rows.values()), {key: ""}))
        if text != whole:  # the process ended within a line
            self._write()

    def add(self, number: int, values: Mapping[str, Any]) -> None:
        row = {self._key: str(number), **{name: _cell(value) for name, value in values.items()}}
        appended = number not in self._rows and set(row) <= set(self._columns)
        self._rows[number] = row
        self._columns += [name for name in row if name not in self._columns]
        if appended and self._path.exists():
            with self._path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._lines([row]))
        else:
            self._write()

    def _write(self) -> None:
        ordered = [self._rows[number] for number in sorted(self._rows)]
        header = dict(zip(self._columns, self._columns, strict=True))
        write_atomic(self._path, self._lines([header, *ordered]).encode())

    def _lines(self, rows: list[dict[str, str]]) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n")
        writer.writerows(rows)
        return text.getvalue()


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
