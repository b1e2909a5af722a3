"""Files of a run: whole or absent, never half. JSON, JSON lines and tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaforge.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside, flush to the disk, then rename over: a reader sees old or new, whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DataError(
            f"{path}: cannot write: {error.strerror}; earlier files are intact"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Indented, NaN refused (a result is a number or null)."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; expected a run folder's file") from None
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: not readable as JSON: {error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a whole JSON-lines file, which stays as it is.

    Raises ``DataError`` where ``Lines`` would drop what is cut short or not readable.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    whole = list(_whole_lines(path))
    if len(whole) != len(text.splitlines()):
        raise DataError(f"{path}: line {len(whole) + 1} is cut short, or not JSON")
    return [json.loads(line) for line in whole]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Any = None) -> None:
    """A safetensors file, with ``metadata`` as JSON in its header."""
    from safetensors.torch import save

    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomic(path, save(contiguous, {"metaforge": json.dumps(metadata)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What ``save_tensors`` wrote: tensors and metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("metaforge", "null"))
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise DataError(
            f"{path}: not a whole safetensors file: {error}; delete it and resume"
        ) from error


class Lines:
    """A JSON-lines file that is appended to; a line cut short by a crash is dropped on open."""

    def __init__(self, path: Path):
        self.path = path
        whole = list(_whole_lines(path))
        self.records: list[dict[str, Any]] = [json.loads(line) for line in whole]
        text = "".join(f"{line}\n" for line in whole).encode()
        if not path.exists() or path.read_bytes() != text:
            write_atomic(path, text)

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False)
        try:
            with self.path.open("a") as file:
                file.write(line + "\n")
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot write: {error.strerror}; earlier records are intact"
            ) from error
        self.records.append(json.loads(line))

    def truncate(self, keep: int) -> None:
        """Keep the first records alone."""
        self.records = self.records[:keep]
        write_atomic(self.path, "".join(json.dumps(r) + "\n" for r in self.records).encode())


def _whole_lines(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    for line in path.read_text(errors="replace").splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            json.loads(line)
        except ValueError:
            return
        yield line.rstrip("\n")
