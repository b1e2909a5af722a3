"""Runs of a small recipe under faults: what each ends with, and whether it can be gone on with."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaforge.seals import opened

ROOT = Path(__file__).parents[2]
#: The share of all faults that is injected; 0 for the few that fit into ``make test``.
SHARE = float(os.environ.get("METAFORGE_TORTURE", "") or 0)
#: All of a run's stages in a second: what is saved in each, is saved here.
RECIPE: dict[str, Any] = {
    "name": "torture",
    "data": {"use": "sinusoids", "shots": 4, "queries": 5},
    "inner": {"use": "maml", "model": {"use": "mlp", "hidden": [8]}, "steps": 1, "lr": 0.01},
    "bank": {"size": 40},
    "meta_train": {"steps": 24, "batch": 2, "validate_every": 4, "validation_targets": 4},
    "condition": {"steps": 4, "batch": 2, "top_m": 8},
    "select": {"grid": {"condition.steps": [2, 4], "condition.top_m": [3, 8]}, "targets": 4},
    "evaluate": {"targets": 8, "controls": ["random_m"], "workers": 1},
    "trackers": [{"use": "csv"}],
}
STAGES = ("prepare", "meta-train", "select", "evaluate", "results")
#: What a run leaves that has the same bits each time.
SAME = (
    *("resolved.yaml", "metrics.jsonl", "select.jsonl", "select.json", "targets.jsonl"),
    *("metrics.csv", "targets.csv", "artifacts/theta_hat.safetensors", "artifacts/data.json"),
    "artifacts/picture.json",
)
#: What was injected, by the kind of fault and what came of it.
tally: Counter[tuple[str, str]] = Counter()


def number(few: int, many: int) -> int:
    return max(few, round(SHARE * many))


@dataclass
class Ended:
    """A command that has ended: its exit code (negative for a signal), what it said."""

    code: int
    out: str
    err: str
    stages: dict[str, float]
    struck: bool
    seconds: float
    bytes: int = 0

    def told_in_one(self) -> str:
        """The one message of a command that failed."""
        assert self.code in (2, 3, 4, 5, 130), (self.code, self.err)
        assert "Traceback" not in self.err, self.err
        message = self.err.rpartition("error: ")[2]
        assert message.strip(), self.err
        return message


class Zygote:
    """The process that forks commands."""

    def __init__(self, place: Path):
        self._place, self._count = place, 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.call("--version", cwd=place).code == 0  # it is ready

    def begin(
        self,
        *argv: str,
        fault: dict[str, Any],
        cwd: Path,
        cache: Path | None = None,
        **streams: str,
    ) -> None:
        """Ask for a command in a folder of its own, which has its cache too unless one is given."""
        self._count += 1
        self._said = [str(self._place / f"{self._count}.{name}") for name in ("out", "err")]
        request = {
            "argv": argv,
            "cwd": str(cwd),
            "env": {"METAFORGE_CACHE": str(cache or cwd / "cache")},
            "fault": fault,
            "stdout": self._said[0],
            "stderr": self._said[1],
            **streams,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def end(self) -> Ended:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        said = [Path(path) for path in self._said]
        out, err = (path.read_text() if path.exists() else "" for path in said)
        for path in said:
            path.unlink(missing_ok=True)
        return Ended(out=out, err=err, **answer)

    def call(self, *argv: str, cwd: Path, fault: dict[str, Any] | None = None) -> Ended:
        self.begin(*argv, fault=fault or {}, cwd=cwd)
        return self.end()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def run(zygote: Zygote, cwd: Path, fault: dict[str, Any] | None = None, *more: str) -> Ended:
    """The recipe, in a folder where nothing was run before."""
    cwd.mkdir(parents=True, exist_ok=True)
    (cwd / "torture.yaml").write_text(json.dumps(RECIPE))
    return zygote.call("run", "torture.yaml", "--quiet", *more, cwd=cwd, fault=fault)


def folder(cwd: Path) -> Path | None:
    found = sorted((cwd / "runs").glob("*")) if (cwd / "runs").is_dir() else []
    return found[-1] if found else None


def figures(path: Path) -> dict[str, Any]:
    """All that must be the same: files by their bytes, results without the clock. There is no
    curve of phase 1 in a run that found its result in the cache."""
    found: dict[str, Any] = {
        name: (path / name).read_bytes() if (path / name).exists() else None for name in SAME
    }
    results = opened((path / "results.json").read_text()).value
    return {**found, "results": {key: results[key] for key in results if key != "seconds"}}


def differing(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [name for name in expected if found[name] != expected[name]]


def survives(
    zygote: Zygote, cwd: Path, expected: dict[str, Any], fault: dict[str, Any], kind: str
) -> Ended:
    """Run under a fault, go on without it: the same bits as of a run that met none.

    A run that did not come so far as to have a recipe in its folder is refused in one message.
    """
    ended = run(zygote, cwd, fault)
    path = folder(cwd)
    if ended.code == 0:
        outcome = "went through"
    elif path is None or not (path / "resolved.yaml").exists():
        outcome = "ended before it began"
        if path is not None:
            again = zygote.call("run", "--resume", str(path), cwd=cwd)
            assert "not a run folder" in again.told_in_one(), fault
        tally[kind, outcome] += 1
        return ended
    else:
        outcome = "resumed"
        again = zygote.call("run", "--quiet", "--resume", str(path), cwd=cwd)
        assert again.code == 0, (fault, ended.err, again.err)
    assert path is not None
    others = differing(figures(path), expected)
    assert not others, (fault, outcome, others)
    left = [part for part in cwd.rglob(".*.part") if "cache" not in part.parts]
    assert not left, (fault, left)
    tally[kind, outcome] += 1
    return ended


def dice(*words: object) -> random.Random:
    """A stream of random numbers that is named, so that a fault can be had again."""
    return random.Random(" ".join(map(str, words)))
