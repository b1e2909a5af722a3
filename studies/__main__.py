"""``python -m studies [--out DIR] [--page]``: make what runs are missing, then the page.

Takes hours. Stopped at any moment, it goes on where it was; ``--page`` makes the page of the
runs that are there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from metaforge.errors import MetaforgeError
from studies import page, plan
from studies.runs import ROOT, Runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "results", help="the runs")
    parser.add_argument("--page", action="store_true", help="make no runs, only the page")
    chosen = parser.parse_args()
    try:
        runs = Runs(chosen.out)
        if not chosen.page:
            _make(runs)
        page.write(runs)
    except MetaforgeError as error:
        parser.exit(1, f"{error}\n")


def _make(runs: Runs) -> None:
    todo = [(cell, seed) for cell in plan.every() for seed in plan.SEEDS]
    for number, (cell, seed) in enumerate(todo, start=1):
        started = time.perf_counter()
        runs.make(cell, seed)
        took = time.perf_counter() - started
        print(f"{number}/{len(todo)} {cell.command} seed={seed}: {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
