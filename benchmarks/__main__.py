"""``python -m benchmarks [NAME ...] [--full] [--json FILE] [--threads N]``; no name runs all.

Ends with 1 if a promised ratio was missed.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import torch

from benchmarks import harness


def main(arguments: list[str] | None = None) -> int:
    found = {module.name for module in iter_modules([str(Path(__file__).parent)])}
    names = sorted(found - {"harness", "__main__"})
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--full", action="store_true", help="the larger sizes too, for hours")
    parser.add_argument("--threads", type=int, help="torch's CPU threads")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - set(names):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    print("  ".join(f"{key}: {value}" for key, value in harness.machine().items()))
    results, missed = {}, []
    for name in chosen.names or names:
        results[name] = []
        module = import_module(f"benchmarks.{name}")
        larger = getattr(module, "full_rows", module.rows)
        for row in larger() if chosen.full else module.rows():
            results[name].append(row)
            print(f"\n{harness.render(row)}", flush=True)
            missed += [f"{row.name}: {entry}" for entry in row.missed()]
    if chosen.json:
        harness.write(chosen.json, results)
    if missed:
        print(f"\nfell short of what is promised: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
