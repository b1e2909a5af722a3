"""Changed inputs through a door, in a process of their own: ``python -m tests.fuzz DOOR``.

What happens is written as one JSON object: how many inputs, how many of them were read, refused,
and faults, each with the number of its input, which ``--only`` makes again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

from metaforge.errors import MetaforgeError
from tests.fuzz.door import Door, Files
from tests.fuzz.doors import BY_NAME
from tests.fuzz.guard import Guard, limit_memory, limited_time
from tests.fuzz.specimens import SPECIMENS

#: MiB beyond what the process has once everything is imported.
MEMORY = 1024
#: Characters of an error's message, and faults that are told.
_LONGEST, _TOLD = 60_000, 20
_ALL = {**BY_NAME, **SPECIMENS}


def main() -> int:
    options = _options()
    door = _ALL[options.door]
    # what is written to a disk for certain takes its time there
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        os.environ["METAFORGE_CACHE"] = str(Path(name) / "cache")
        print(json.dumps(_run(door, Path(name), options)))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("door", choices=_ALL)
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one input")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that fail")
    return parser.parse_args()


def _run(door: Door, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    made = folder / "seeds"
    made.mkdir()
    seeds = door.seeds(made)
    root = Path(__file__).parents[2]
    guard = Guard(folder, None if door.reads_anywhere else (root, *map(Path, sys.path)))
    for seed in seeds:
        _write(folder / "input", seed)
        door.enter(folder / "input")  # whole, it is read; and what it needs is imported
    limit_memory(MEMORY)
    found: dict[str, Any] = {"inputs": 0, "read": 0, "refused": 0, "faults": [], "slowest": 0.0}
    numbers = range(options.inputs) if options.only is None else [options.only]
    for number in numbers:
        files = door.mutated(seeds, Random(f"{options.seed} {door.name} {number}"))
        _write(folder / "input", files)
        started = time.process_time()
        fault = _entered(door, folder / "input", guard, found)
        found["slowest"] = max(found["slowest"], time.process_time() - started)
        found["inputs"] += 1
        if fault:
            found["faults"].append(f"{door.name} {number}: {fault}")
            if options.keep:
                _write(options.keep / f"{door.name}-{number}", files)
            if len(found["faults"]) == _TOLD:
                break
    return found


def _entered(door: Door, folder: Path, guard: Guard, found: dict[str, Any]) -> str | None:
    """What is wrong with how the input was taken, or None."""
    guard.heard = None
    try:
        with limited_time(door.slow), guard.watching():
            door.enter(folder)
        found["read"] += 1
    except MetaforgeError as error:
        found["refused"] += 1
        if not 0 < len(str(error)) <= _LONGEST:
            return f"a message of {len(str(error))} characters"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-6:]
        way = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in last[::-1])
        return f"{type(error).__name__}: {str(error)[:300]} ({way})"
    return guard.heard


def _write(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
