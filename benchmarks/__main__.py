"""``python -m benchmarks [NAME ...] [--full] [--device cuda] [--threads N] [--json FILE]
[--write]``; no name runs all. Ranks and the cost model have commands of their own,
``python -m benchmarks.scaling`` and ``python -m benchmarks.costs``.

Ends with 1 if a promised ratio was missed. ``--check`` times a few quick rows instead and compares
their ratios with ``stored.json``, which ``--store`` writes: 1 if one got slower by more than 20 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import torch

from benchmarks import check, harness, pages

_NO_BENCHMARKS = {"harness", "check", "pages", "costs", "scaling", "__main__"}


def main(arguments: list[str] | None = None) -> int:
    chosen = _chosen(arguments)
    print("  ".join(f"{key}: {value}" for key, value in harness.machine().items()))
    if chosen.check or chosen.store:
        return check.store() if chosen.store else check.main()
    results, missed = {}, []
    for name in chosen.names:
        module = import_module(f"benchmarks.{name}")
        if chosen.device != "cpu" and getattr(module, "CPU_ONLY", False):
            print(f"\n{name}: left out, it is about the CPU")
            continue
        results[name] = []
        larger = getattr(module, "full_rows", module.rows)
        for row in larger() if chosen.full else module.rows():
            results[name].append(row)
            print(f"\n{harness.render(row)}", flush=True)
            missed += [f"{row.name}: {entry}" for entry in row.missed()]
        if chosen.write:
            pages.keep(harness.content({name: results[name]}))
    if chosen.json:
        chosen.json.write_text(json.dumps(harness.content(results), indent=2) + "\n")
    if missed:
        print(f"\nfell short of what is promised: {'; '.join(missed)}")
    return 1 if missed else 0


def _chosen(arguments: list[str] | None) -> argparse.Namespace:
    """The options, all of them found to be good before anything is timed."""
    modules = {module.name for module in iter_modules([str(Path(__file__).parent)])}
    names = sorted(modules - _NO_BENCHMARKS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    written = "keep the figures, and put the table into docs/results.md"
    parser.add_argument("--write", action="store_true", help=written)
    larger = "the larger banks too, for half an hour"
    parser.add_argument("--full", action="store_true", help=larger)
    parser.add_argument("--threads", type=int, help="torch's CPU threads")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    quick = parser.add_mutually_exclusive_group()
    quick.add_argument("--check", action="store_true", help="compare quick rows with stored.json")
    quick.add_argument("--store", action="store_true", help="write quick rows to stored.json")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - set(names):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    more = chosen.names or chosen.json or chosen.write or chosen.full
    if (chosen.check or chosen.store) and more:
        parser.error("--check and --store have rows of their own: leave out names and the rest")
    if chosen.json and not os.access(chosen.json.absolute().parent, os.W_OK):
        parser.error(f"--json {chosen.json}: there is no folder that can be written")
    if chosen.threads is not None and chosen.threads < 1:
        parser.error(f"--threads {chosen.threads}: expected 1 or more")
    if chosen.device.partition(":")[0] not in ("cpu", "cuda"):
        parser.error(f"--device {chosen.device}: expected cpu, cuda or cuda:1")
    try:
        harness.use(chosen.device)
    except (RuntimeError, AssertionError) as error:
        parser.error(f"--device {chosen.device}: {str(error).splitlines()[0]}")
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    chosen.names = chosen.names or names
    return chosen


if __name__ == "__main__":
    sys.exit(main())
