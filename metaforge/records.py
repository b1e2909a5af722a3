"""Files of a run: whole or absent, never half. JSON, JSON lines and tensors.

What is read is checked against its seal (``metaforge.seals``), where it has one, and against a
shape of ``metaforge.run_files``: keys and types.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from metaforge import seals
from metaforge.errors import DamagedFile, DataError, NumericError, one_line

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
    interrupts the writing leaves nothing, and a death a part that ``remove_parts`` finds. Raises
    ``DataError`` where it is the disk's fault."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
def whole_folder(
    path: Path, *, force: bool = False, replaces: Collection[str] = ()
) -> Iterator[Path]:
    """A folder beside ``path`` to be filled, which takes its place when all is written; nothing
    is left of it otherwise.

    Raises ``DataError`` where ``refuse_taken`` does, before anything is written and again before
    it takes its place, and where the disk fails.
    """
    refuse_taken(path, force=force, replaces=replaces)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    gone = path.with_name(f".{path.name}.{os.getpid()}.gone")
    try:
        part.mkdir(parents=True)
        yield part
        refuse_taken(path, force=force, replaces=replaces)  # by another process, meanwhile
        if path.is_dir():
            path.rename(gone)
        part.rename(path)
        shutil.rmtree(gone, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise DataError(f"{path}: cannot write: {error.strerror}") from error


def refuse_taken(path: Path, *, force: bool = False, replaces: Collection[str] = ()) -> None:
    """``DataError`` where no folder can be made at ``path``, or one is there: ``force`` replaces
    one that holds nothing but files of the names ``replaces``."""
    if not path.name or path.name == "..":
        raise DataError(f"{path}: expected the name of a folder to be made")
    if path.is_symlink():
        raise DataError(f"{path}: is a link; expected the name of a folder to be made")
    if path.is_dir() and not force:
        raise DataError(f"{path}: exists; nothing is overwritten without --force")
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: is a file; expected the name of a folder to be made")
    if path.is_dir() and (others := sorted({one.name for one in path.iterdir()} - {*replaces})):
        shown = ", ".join(others[:_TOLD]) + (", ..." if len(others) > _TOLD else "")
        raise DataError(
            f"{path}: holds {shown}: --force replaces what this command has made, and nothing else"
        )


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
        if name != Path(name).name or not name.strip("."):
            wrong.append(f"{name!r} is no file of this folder")
        elif not (folder / name).is_file():
            wrong.append(f"{name} is missing")
        elif digest(folder / name) != wanted:
            wrong.append(f"{name} is not what was written")
    if wrong:
        raise DamagedFile(f"{folder}: damaged: {'; '.join(wrong)}: copy the folder again, whole")


def remove_parts(folder: Path) -> int:
    """Remove what processes that died had begun to write in a folder; the bytes that frees.

    A part whose writer lives is locked, and left alone.
    """
    freed = 0
    for part in folder.glob(".*.part"):
        with suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(file.fileno()).st_size
            part.unlink()
            freed += size
    return freed


@contextmanager
def restoring(path: Path, again: str) -> Iterator[None]:
    """Within, what stands in a folder's files is made again: ``DamagedFile`` where it is of a form
    of which it cannot be. ``again`` says how such a folder is made anew."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFile(
            f"{path}: not what this version of metaforge writes ({one_line(error)}); {again}"
        ) from error


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
    """Indented. A result is a number or null: ``NumericError`` says which is not finite."""
    write_atomic(path, (_finite_json(path, value, indent=2) + "\n").encode())


def _finite_json(path: Path, value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError as error:
        from metaforge.recipe.document import dotted

        bad = [dotted(at) for at in _not_finite(value)]
        more = f" and {len(bad) - _TOLD} more" if len(bad) > _TOLD else ""
        raise NumericError(
            f"{path.name}: not finite, so not written: {', '.join(bad[:_TOLD])}{more}: scores "
            "have overflowed; lower the learning rates, or use precision: float64"
        ) from error


def _not_finite(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value holds numbers that are not finite."""
    if isinstance(value, Mapping):
        value = list(value.items())
    elif isinstance(value, list | tuple):
        value = list(enumerate(value))
    elif isinstance(value, float) and not math.isfinite(value):
        yield at
    for key, item in value if isinstance(value, list) else ():
        yield from _not_finite(item, (*at, key))


def read_json(path: Path, shape: type[BaseModel]) -> Any:
    """What the file holds, without its seal. ``DamagedFile`` where it is not there, no JSON, not
    what was sealed or of another shape."""
    try:
        found = seals.opened(path.read_text())
    except FileNotFoundError:
        raise DamagedFile(f"{path}: no such file; expected a run folder's file") from None
    except seals.BrokenSeal as error:
        raise DamagedFile(
            f"{path}: damaged: {error}; restore it, or make the run anew from its resolved.yaml"
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedFile(f"{path}: not readable as JSON: {error}") from error
    check(str(path), found.text, shape)
    return found.value


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
    lines, fault = _whole_lines(path)
    if fault:
        raise DamagedFile(f"{path}: line {len(lines) + 1} is {fault}")
    return _records(path, lines, shape)


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write ``tensor_bytes``."""
    write_atomic(path, tensor_bytes(tensors, metadata))


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> bytes:
    """A safetensors file, with ``metadata`` as JSON in its header, and its seal."""
    from safetensors.torch import save

    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    said = dict(metadata or {})
    seal = seals.of_tensors(contiguous, json.dumps(said))
    # One entry: safetensors writes several in no order, and a file's bytes are to be the same.
    return save(contiguous, {"metaforge": json.dumps({**said, seals.SEAL: seal})})


def load_tensors(path: Path, shape: type[BaseModel] | None = None) -> tuple[dict[str, Tensor], Any]:
    """What ``save_tensors`` wrote: tensors and metadata, which is checked against a shape."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = json.loads(said.get("metaforge", "{}"))
        seal = metadata.pop(seals.SEAL, None) if isinstance(metadata, dict) else None
        text = json.dumps(metadata)
        if seal is not None and seal != seals.of_tensors(tensors, text):
            raise seals.BrokenSeal
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise DamagedFile(
            f"{path}: not a whole safetensors file: {error}; delete it and resume"
        ) from error
    if shape is not None:
        check(str(path), text, shape)
    return tensors, metadata


class Lines:
    """A JSON-lines file that is appended to, each line with its seal. On open a line cut short by
    a crash is dropped, or one that is not what was written, with all after it: they are done anew.

    ``dropped`` says what was, or nothing. Raises ``DamagedFile`` for a whole line that is not of
    the shape.
    """

    def __init__(self, path: Path, shape: type[BaseModel]):
        self.path = path
        lines, fault = _whole_lines(path) if path.exists() else ([], "")
        self.records: list[dict[str, Any]] = _records(path, lines, shape)
        self.dropped = f"line {len(lines) + 1} is {fault}" if fault else ""
        if fault or not path.exists() or not all(line.sealed for line in lines):
            self.replace(self.records)

    def append(self, record: dict[str, Any]) -> None:
        line = _line(self.path, record)
        try:
            with self.path.open("a") as file:
                file.write(line)
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot write: {error.strerror}; earlier records are intact"
            ) from error
        self.records.append(seals.opened(line).value)

    def truncate(self, keep: int) -> None:
        """Keep the first records alone."""
        if keep < len(self.records):
            self.replace(self.records[:keep])

    def replace(self, records: Sequence[dict[str, Any]]) -> None:
        """Hold these records and no others."""
        self.records = list(records)
        write_atomic(
            self.path, "".join(_line(self.path, record) for record in self.records).encode()
        )


def _line(path: Path, record: dict[str, Any]) -> str:
    _finite_json(path, record)
    return json.dumps(seals.sealed(record)) + "\n"


def _records(
    path: Path, lines: Sequence[seals.Opened], shape: type[BaseModel]
) -> list[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        check(f"{path}: line {number}", line.text, shape)
    return [line.value for line in lines]


def _whole_lines(path: Path) -> tuple[list[seals.Opened], str]:
    """The lines up to the first that is not as it was written, and what is wrong with that one.

    Of a file's lines all have a seal, or none.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read: {error.strerror}") from error
    found: list[seals.Opened] = []
    for line in text.splitlines(keepends=True):
        try:
            if not line.endswith("\n"):
                raise ValueError
            one = seals.opened(line.rstrip("\n"))
        except seals.BrokenSeal:
            return found, "damaged: its content is not what was written there"
        except (ValueError, RecursionError):
            return found, "cut short, or not JSON"
        if found and one.sealed != found[0].sealed:
            return found, "damaged: some lines have a seal, and some have none"
        found.append(one)
    return found, ""
