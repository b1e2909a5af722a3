"""The run folder: one folder a run, never overwritten, held by one process at a time.

::

    runs/<UTC stamp>-<recipe>-<hash6>/
      recipe.yaml     as given            resolved.yaml  every option, reproduces the run
      env.json        versions, device    status.json    stage and state
      log.txt         what was said       metrics.jsonl  the meta-training curve
      targets.jsonl   one line a target   timings.jsonl  seconds a target and arm
      results.json    the figures         artifacts/     tensors, for resuming and reuse
      report.html     the page                           picture.json: what the page shows
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from metaforge import run_files, seals
from metaforge.errors import DamagedFile, DataError, one_line
from metaforge.records import Lines, read_json, remove_parts, write_atomic, write_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from metaforge.recipe import ResolvedRecipe

#: The shape of each file of lines.
_LINES: dict[str, type[BaseModel]] = {
    "metrics.jsonl": run_files.Record,
    "select.jsonl": run_files.Trial,
    "targets.jsonl": run_files.Target,
    "timings.jsonl": run_files.Seconds,
}
#: Lock files this process holds. A fork would share them and keep a folder locked after its
#: holder's death, so children let go of them.
_held: set[IO[str]] = set()


def _let_go() -> None:
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


class RunDir:
    """Paths and state of one run's folder."""

    def __init__(self, path: Path):
        self.path = path
        self.artifacts = path / "artifacts"
        self.picture = self.artifacts / "picture.json"

    @classmethod
    def create(cls, resolved: ResolvedRecipe) -> RunDir:
        """A new folder under the recipe's ``output``; DataError where it cannot be made."""
        resolved_text = resolved.to_yaml()
        digest = hashlib.blake2b(resolved_text.encode(), digest_size=3).hexdigest()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        base = Path(resolved.recipe.output) / f"{stamp}-{resolved.recipe.name}-{digest}"
        path = base
        for copy in range(2, 1000):
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                path = base.with_name(f"{base.name}-{copy}")
            except OSError as error:
                raise DataError(
                    f"output: cannot make {path}: {error.strerror}; give a folder that can be "
                    "written, e.g. output=/path/to/runs"
                ) from error
        run = cls(path)
        try:
            run.artifacts.mkdir()
            write_atomic(path / "recipe.yaml", resolved.text.encode())
            write_atomic(path / "resolved.yaml", seals.sealed_text(resolved_text).encode())
        except (OSError, DataError) as error:
            shutil.rmtree(path, ignore_errors=True)
            why = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"output: cannot begin a run in {path}: {why}") from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """An existing folder; DataError says what is missing."""
        if not (path / "resolved.yaml").is_file():
            raise DataError(
                f"{path}: not a run folder (no resolved.yaml in it); expected a folder such as "
                "runs/20260101T120000Z-sp_maml-1a2b3c"
            )
        return cls(path)

    def recipe_text(self) -> str:
        """``resolved.yaml``. ``DamagedFile`` where it is not what was written."""
        path = self.path / "resolved.yaml"
        try:
            text = path.read_text(encoding="utf-8")
            seals.check_text(text)
        except (OSError, ValueError) as error:
            raise DamagedFile(f"{path}: cannot be read: {one_line(error)}") from error
        return text

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; a second process is refused. The lock dies with its process."""
        try:
            self.artifacts.mkdir(exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be written: {error.strerror} ({error.filename})"
            ) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise DataError(
                    f"{self.path}: process {holder} is running it; wait for it, or stop it first"
                ) from None
            except OSError as error:
                raise DataError(
                    f"{self.path}: cannot be locked: {error.strerror}; give a folder on another "
                    "file system, e.g. output=/path/to/runs"
                ) from error
            self._note_holder(file)
            for folder in (self.path, self.artifacts):
                remove_parts(folder)
            _held.add(file)
            try:
                yield
            finally:
                _held.discard(file)

    def _note_holder(self, file: IO[str]) -> None:
        """For who is refused; a full disk, which fails here first, is told by what follows."""
        with suppress(OSError):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()

    def refuse_other_data(self, fingerprint: str) -> None:
        """Note the data that the run began with; DataError if it resumes on others."""
        path = self.artifacts / "data.json"
        if not path.exists():
            write_json(path, seals.sealed({"fingerprint": fingerprint}))
            return
        before = read_json(path, run_files.Data)["fingerprint"]
        if before != fingerprint:
            raise DataError(
                f"{self.path}: its data have changed since it began (fingerprint {before[:12]}, "
                f"now {fingerprint[:12]}): restore the data, or start a new run"
            )

    def status(self, state: str, stage: str, **more: Any) -> None:
        found = {
            "state": state,
            "stage": stage,
            "pid": os.getpid(),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            **more,
        }
        write_json(self.path / "status.json", seals.sealed(found))

    def lines(self, name: str) -> Lines:
        found = Lines(self.path / name, _LINES[name])
        if found.dropped:
            self.log(f"note: {name}: {found.dropped}: done anew from there")
        return found

    def log(self, line: str) -> None:
        stamp, path = datetime.now(UTC).strftime("%H:%M:%S"), self.path / "log.txt"
        try:
            with path.open("a") as file:
                file.write(f"{stamp} {line}\n")
        except OSError as error:
            raise DataError(f"{path}: cannot write: {error.strerror}") from error

    @property
    def unsealed(self) -> list[str]:
        """A note where the results have no seal, so that damage to them would not be seen."""
        path = self.path / "results.json"
        if seals.SEAL in json.loads(path.read_text()):
            return []
        return [
            f"note: {path.name} has no seal, as an earlier version wrote it: damage is not seen"
        ]

    @property
    def results(self) -> dict[str, Any]:
        """Of a finished run. ``DataError`` says where another stopped and how it goes on."""
        status = read_json(self.path / "status.json", run_files.Status)
        if status["state"] != "done":
            wait = "wait for it, or if it was stopped, " if status["state"] == "running" else ""
            raise DataError(
                f"{self.path}: unfinished ({status['state']}, in {status['stage']}); {wait}go on "
                f"with: metaforge run --resume {self.path}"
            )
        return read_json(self.path / "results.json", run_files.Results)
