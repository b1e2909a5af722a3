"""A run by 1, 2, ... ranks: seconds of its phases, each as a whole process group.

``python -m benchmarks.scaling [--ranks 1 2 4] [--recipe sp_ls] [--write] [KEY=VALUE ...]`` prints
the table, and with ``--write`` puts it into docs/scaling.md. On a machine that does other work its
figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.pages import put

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
#: What a run's log says of a phase: how many, in how many seconds.
_PHASE = re.compile(r"(meta-train|targets): (\d+) in ([\d.]+) s")
SMALL = (
    "meta_train.steps=200",
    "bank.size=1000",
    "condition.steps=20",
    "evaluate.targets=24",
    "evaluate.controls=[]",
    "evaluate.workers=1",
)


Found = dict[int, dict[str, float]]


def measure(numbers: Sequence[int], recipe: str, changes: Sequence[str]) -> Found:
    """Seconds a step of phase 1 and a target by the number of ranks.

    All runs share a new cache: data are prepared once, and phase 1 of no other number is in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        here = {**os.environ, "METAFORGE_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        found = {}
        for ranks in numbers:
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            run = [
                "-m",
                "metaforge",
                "run",
                "--quiet",
                recipe,
                *changes,
                f"output={folder}/{ranks}",
            ]
            subprocess.run([sys.executable, *launch, *run], check=True, env=here)
            (path,) = Path(folder, str(ranks)).iterdir()
            assert json.loads((path / "env.json").read_text())["ranks"] == ranks
            found[ranks] = read((path / "log.txt").read_text())
        return found


def read(log: str) -> dict[str, float]:
    """Seconds a step and a target, of a run's log."""
    return {name: float(seconds) / int(n) for name, n, seconds in _PHASE.findall(log)}


def table(found: Found, recipe: str, changes: Sequence[str]) -> str:
    """Markdown: a line for each number of ranks, and what it was measured on."""
    first = found[min(found)]
    machine = ", ".join(f"{key} {value}" for key, value in harness.facts().items())
    lines = [
        "| ranks | ms a step | times as fast | ms a target | times as fast |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for ranks, seconds in sorted(found.items()):
        cells = [str(ranks)]
        for phase in ("meta-train", "targets"):
            cells += [f"{1e3 * seconds[phase]:.3g}", f"{first[phase] / seconds[phase]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"`{' '.join([recipe, *changes])}`; {machine}."])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", default=list(SMALL))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--recipe", default="sp_ls")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    chosen = parser.parse_args(arguments)
    found = measure(chosen.ranks, chosen.recipe, chosen.changes)
    made = table(found, chosen.recipe, chosen.changes)
    print(made)
    if chosen.write:
        PAGE.write_text(put("scaling", made, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
