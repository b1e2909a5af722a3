"""Files of a run: whole or absent, never half. JSON, JSON lines and tensors.

What is read is checked against a shape of ``metaforge.run_files``: keys and types.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from metaforge.errors import DamagedFile, DataError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from torch import Tensor


#: Faults of a file that a message lists.
_TOLD = 3


def write_atomic(path: Path, data: bytes) -> None:
    """``whole_file`` of some bytes."""
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside, flush to the disk, then rename over: a reader sees old or new, whole. What
    interrupts the writing leaves nothing. Raises ``DataError`` where it is the disk's fault."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise DataError(
            f"{path}: cannot write: {error.strerror}; earlier files are intact"
        ) from error


@contextmanager
def whole_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A folder beside ``path`` to be filled, which takes its place when all is written; nothing
    is left of it otherwise.

    Raises ``DataError`` where there is something at ``path`` already, before anything is
    written (``force`` replaces a folder), and where the disk fails.
    """
    refuse_taken(path, force=force)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        yield part
        if path.is_dir():
            shutil.rmtree(path)
        part.rename(path)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise DataError(f"{path}: cannot write: {error.strerror}") from error


def refuse_taken(path: Path, *, force: bool = False) -> None:
    """``DataError`` where no folder can be made at ``path``, or one is there (unless ``force``)."""
    if path.is_dir() and not force:
        raise DataError(f"{path}: exists; nothing is overwritten without --force")
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: is a file; expected the name of a folder to be made")


def digest(path: Path) -> str:
    """Hex digest of a file. Raises ``DamagedFile`` where it cannot be read."""
    found = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read: {error.strerror}") from error
    return found.hexdigest()


def refuse_other_files(folder: Path, digests: Mapping[str, str]) -> None:
    """``DamagedFile`` that lists the files of a folder which are missing, or not as written."""
    wrong = []
    for name, wanted in digests.items():
        if not (folder / name).is_file():
            wrong.append(f"{name} is missing")
        elif digest(folder / name) != wanted:
            wrong.append(f"{name} is not what was written")
    if wrong:
        raise DamagedFile(f"{folder}: damaged: {'; '.join(wrong)}: copy the folder again, whole")


def keep(path: Path, data: bytes, report: Callable[[str], None]) -> None:
    """Write a file of the cache. A folder that is of no use costs the cache alone, and is told."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except (OSError, DataError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        report(
            f"note: not kept for the next run, as {path.parent} is of no use ({why}): set "
            "METAFORGE_CACHE to a folder that can be written"
        )


def write_json(path: Path, value: Any) -> None:
    """Indented, NaN refused (a result is a number or null)."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path, shape: type[BaseModel]) -> Any:
    """What the file holds. ``DamagedFile`` where it is not there, no JSON or of another shape."""
    try:
        text = path.read_text()
        found = json.loads(text)
    except FileNotFoundError:
        raise DamagedFile(f"{path}: no such file; expected a run folder's file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedFile(f"{path}: not readable as JSON: {error}") from error
    check(str(path), text, shape)
    return found


def check(where: str, text: str, shape: type[BaseModel]) -> None:
    """``DamagedFile`` with the places where JSON is not of a shape, and what was found there."""
    from pydantic import ValidationError

    try:
        shape.model_validate_json(text)
    except ValidationError as error:
        from metaforge.recipe.document import dotted
        from metaforge.recipe.render import findings

        found = findings(error, shape, json.loads(text))
        told = [f"{dotted(at) or 'it'}: {message}" for at, message in found[:_TOLD]]
        told += [f"and {len(found) - _TOLD} more faults"] if len(found) > _TOLD else []
        raise DamagedFile(
            f"{where}: damaged, or made by another version of metaforge: {'; '.join(told)}; "
            "make the run anew from its resolved.yaml"
        ) from None


def read_lines(path: Path, shape: type[BaseModel]) -> list[dict[str, Any]]:
    """The records of a whole JSON-lines file, which stays as it is.

    Raises ``DamagedFile`` where ``Lines`` would drop what is cut short or not readable.
    """
    text = _text(path)
    whole = list(_whole_lines(path))
    if len(whole) != len(text.splitlines()):
        raise DamagedFile(f"{path}: line {len(whole) + 1} is cut short, or not JSON")
    return _records(path, whole, shape)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Any = None) -> None:
    """Write ``tensor_bytes``."""
    write_atomic(path, tensor_bytes(tensors, metadata))


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Any = None) -> bytes:
    """A safetensors file, with ``metadata`` as JSON in its header."""
    from safetensors.torch import save

    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return save(contiguous, {"metaforge": json.dumps(metadata)})


def load_tensors(path: Path, shape: type[BaseModel] | None = None) -> tuple[dict[str, Tensor], Any]:
    """What ``save_tensors`` wrote: tensors and metadata, which is checked against a shape."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get("metaforge", "null")
            metadata = json.loads(text)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise DamagedFile(
            f"{path}: not a whole safetensors file: {error}; delete it and resume"
        ) from error
    if shape is not None:
        check(str(path), text, shape)
    return tensors, metadata


class Lines:
    """A JSON-lines file that is appended to; a line cut short by a crash is dropped on open.

    Raises ``DamagedFile`` for a whole line that is not of the shape.
    """

    def __init__(self, path: Path, shape: type[BaseModel]):
        self.path = path
        whole = list(_whole_lines(path))
        self.records: list[dict[str, Any]] = _records(path, whole, shape)
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


def _records(path: Path, lines: list[str], shape: type[BaseModel]) -> list[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        check(f"{path}: line {number}", line, shape)
    return [json.loads(line) for line in lines]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read: {error.strerror}") from error


def _whole_lines(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    for line in _text(path).splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            return
        yield line.rstrip("\n")
