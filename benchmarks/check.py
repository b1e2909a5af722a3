"""Whether anything got slower: the ratios of a few quick rows against stored ones.

A ratio (how many times faster than its peer in the same rounds) says more than seconds, which
change with the machine. A row that fails is timed once more, for a machine that others use too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import conditioning, leo, ls, maml, startup, tasks
from benchmarks.harness import Row, machine

STORED = Path(__file__).with_name("stored.json")
#: A slow-down of a ratio beyond this fails.
SLOWER = 1.2

Ratios = Mapping[str, float]
Timed = Mapping[str, Callable[[], Row]]

#: Quick rows; all take under two minutes on two cores.
QUICK: Timed = {
    "ls": lambda: ls.row(shots=5, rounds=7),
    "maml": lambda: maml.linear(rounds=9),
    "leo": lambda: leo.row("LEO, 5-shot, training", shots=5, training=True, rounds=5),
    "conditioning": lambda: conditioning.one_target(steps=10, rounds=5),
    "targets": lambda: conditioning.targets(8, steps=20, rounds=5),
    "gather": lambda: tasks.gather(rounds=31),
    "drawing": lambda: tasks.drawing(rounds=9),
    "startup": lambda: startup.against_python(rounds=7),
}


@dataclass(frozen=True)
class Finding:
    """A ratio stored and found; None where it is not in one of the two."""

    name: str
    stored: float | None
    found: float | None

    @property
    def slower(self) -> float | None:
        """The factor by which it got slower, below 1 for faster."""
        return None if self.stored is None or self.found is None else self.stored / self.found

    @property
    def failed(self) -> bool:
        return self.found is None or (self.slower is not None and self.slower > SLOWER)

    def told(self) -> str:
        stored, found = (
            "     -" if value is None else f"{value:6.2f}" for value in (self.stored, self.found)
        )
        if self.found is None:
            words = "MISSING: it was not timed"
        elif self.slower is None:
            words = "new: not stored yet"
        else:
            words = f"{self.slower:5.2f} x the time{'  SLOWER' * self.failed}"
        return f"{self.name:<58}{stored}{found}  {words}"


def ratios(key: str, row: Row) -> dict[str, float]:
    """Those of our own entries of a row."""
    ours = [name for name in row.seconds if name.startswith("metaforge") and name != row.peer]
    return {f"{key}: {name}": row.ratio(name) for name in ours}


def findings(stored: Ratios, found: Ratios) -> list[Finding]:
    return [Finding(name, stored.get(name), found.get(name)) for name in {**stored, **found}]


def measure(timed: Timed, stored: Ratios) -> dict[str, float]:
    """The ratios of all rows; a row that fails against the stored ones gets a second try, and
    the better of its ratios count."""
    every: dict[str, float] = {}
    for key, time in timed.items():
        found = ratios(key, time())
        known = {name: stored[name] for name in found if name in stored}
        if any(finding.failed for finding in findings(known, found)):
            again = ratios(key, time())
            found = {name: max(found[name], again[name]) for name in found}
        every |= found
    return every


def main(timed: Timed = QUICK, path: Path = STORED) -> int:
    """0, or 1 if something got slower, or 2 where nothing is stored."""
    if not path.exists():
        print(
            f"{path} is not there: measure what to compare with on a quiet machine, on the code "
            "that is known to be fast: python -m benchmarks --store"
        )
        return 2
    content = json.loads(path.read_text())
    processor = content["machine"]["processor"]
    if processor != machine()["processor"]:
        print(f"note: the stored ratios are of another processor, {processor}")
    found = findings(content["ratios"], measure(timed, content["ratios"]))
    print(f"\n{'times faster than the peer':<58}stored   now")
    for finding in sorted(found, key=lambda finding: not finding.failed):
        print(finding.told())
    failed = sum(finding.failed for finding in found)
    if failed:
        print(
            f"\n{failed} of {len(found)} got slower by more than {SLOWER - 1:.0%}, or are missing"
        )
    return 1 if failed else 0


def store(timed: Timed = QUICK, path: Path = STORED) -> int:
    content = {"machine": machine(), "ratios": measure(timed, {})}
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"stored {len(content['ratios'])} ratios in {path}")
    return 0
