"""Make the runs behind docs/results.md that are missing (hours, if all are; stopped at any
moment, it goes on where it was), then write the page and its plots anew.

The environment variable METAFORGE_DATA names the folder of CIFAR-FS and Omniglot (docs/data.md).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.runs import Runs

_OUT = Path(__file__).parents[1] / "runs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("--out", type=Path, default=_OUT, help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--page", action="store_true", help="make no runs: write the page of those that are there"
    )
    chosen = parser.parse_args()
    # torch and matplotlib take seconds, which --help need not wait for
    from metaforge.errors import MetaforgeError
    from studies import page
    from studies.runs import Runs

    try:
        runs = Runs(chosen.out)
        if not chosen.page:
            _make(runs)
        page.write(runs)
    except MetaforgeError as error:
        parser.exit(1, f"{error}\n")


def _make(runs: Runs) -> None:
    from studies import plan

    todo = [(cell, seed) for cell in plan.every() for seed in plan.SEEDS]
    for number, (cell, seed) in enumerate(todo, start=1):
        started = time.perf_counter()
        runs.make(cell, seed)
        took = time.perf_counter() - started
        print(f"{number}/{len(todo)} {cell.command} seed={seed}: {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
