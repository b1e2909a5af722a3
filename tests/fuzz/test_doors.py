"""Whatever is handed to a door, it is read or refused in words: 10,000 changed inputs.

Each door is in a process of its own, whose files, memory and time are guarded. More inputs, or
others, by ``make fuzz INPUTS=100000 SEED=1``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.doors import DOORS
from tests.fuzz.specimens import ACTS

ROOT = Path(__file__).parents[2]
INPUTS = int(os.environ.get("METAFORGE_FUZZ_INPUTS", "10000"))
SEED = int(os.environ.get("METAFORGE_FUZZ_SEED", "0"))


def through(door: str, inputs: int, seed: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.fuzz", door]
    done = subprocess.run(
        [*command, "--inputs", str(inputs), "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def inputs_of(share: float) -> int:
    return round(share * INPUTS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_changed_input_is_read_or_refused(door):
    found = through(door.name, inputs_of(door.share), SEED)
    again = f"python -m tests.fuzz {door.name} --seed {SEED} --keep DIR --only NUMBER"
    assert not found["faults"], "\n".join([*found["faults"], f"again: {again}"])
    assert found["inputs"] == inputs_of(door.share)
    assert found["read"]
    assert found["refused"] or door.name == "cache"  # which makes anew what it cannot read


def test_all_doors_together_take_as_many_inputs_as_are_asked_for():
    assert sum(inputs_of(door.share) for door in DOORS) >= INPUTS


@pytest.mark.parametrize("name", ACTS)
def test_a_door_that_does_what_no_door_may_is_found_out(name):
    (fault, *_) = through(name, 4)["faults"]
    assert ACTS[name][1] in fault
