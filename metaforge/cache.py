"""The cache folder: what lies there, what is in use, and how room is made. Torch-free.

Each kind has a folder and a form of its names; what is not of that form is not ours, and is left
alone. Who uses a file holds it by a shared lock, which ends with its process, so that none can
be left behind; ``prune`` removes only what nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from metaforge.records import remove_parts

_KEY = "[0-9a-f]{32}"
#: Folder -> what is kept there, and the form of a name.
KINDS = {
    "metatrain": ("phase 1", rf"{_KEY}\.safetensors"),
    "select": ("scores of selection", rf"{_KEY}-\d+\.json"),
    "factors": ("factors of large banks", rf"{_KEY}\.factor"),
    "features": ("features of images", rf"{_KEY}\.npz"),
    "images": ("folders of images", rf"{_KEY}/(X\.npy|index\.json)"),
    "fewshot_images": ("images of data sets", rf"{_KEY}\.(npy|json)"),
    "arrays": ("arrays on disk", rf"{_KEY}\.(npy|json)"),
    "glyphs": ("drawn letters", rf"images-{_KEY}\.npz"),
}


class Entry(NamedTuple):
    """A file of the cache: bytes, and when it was last used, in seconds since 1970."""

    kind: str
    path: Path
    size: int
    used: float


@dataclass
class Pruned:
    """What was removed, what was held by a process, what could not be removed and why, the bytes
    that were freed and those that are left."""

    removed: list[Entry]
    in_use: list[Entry]
    failed: list[tuple[Entry, str]]
    freed: int
    left: int


def hold(file: int) -> None:
    """Hold an open file until it, and what is mapped of it, is closed."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_SH)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether there is such a file of the cache, which is noted as used; within, it stays."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        hold(file)
        with suppress(OSError):  # the cache may be another's, to be read alone
            os.utime(path, ns=(time.time_ns(), os.fstat(file).st_mtime_ns))
        yield os.path.isfile(path)
    finally:
        os.close(file)


def entries(folder: Path) -> list[Entry]:
    """The files of a cache folder, the longest unused first."""
    found = []
    for kind, (_, form) in KINDS.items():
        for path in _files(folder / kind):
            if not re.fullmatch(form, path.relative_to(folder / kind).as_posix()):
                continue
            with suppress(OSError):  # removed meanwhile
                stat = path.stat()
                found.append(Entry(kind, path, stat.st_size, max(stat.st_atime, stat.st_mtime)))
    return sorted(found, key=lambda entry: (entry.used, entry.path))


def strangers(folder: Path) -> list[Path]:
    """What lies in a cache folder and is not known: another's, or of a plugin."""
    known = {entry.path for entry in entries(folder)}
    found = [path for path in _inside(folder) if path.name not in KINDS]
    for kind in KINDS:
        found += [p for p in _files(folder / kind) if p not in known and not _is_part(p)]
    return sorted(found)


def prune(folder: Path, older_than: float | None = None, keep: int | None = None) -> Pruned:
    """Remove what was not used for ``older_than`` seconds, then what was not used for longest until
    no more than ``keep`` bytes are left; and what processes that died had begun to write."""
    found, now = entries(folder), time.time()
    left = sum(entry.size for entry in found)
    freed = sum(remove_parts(place) for kind in KINDS for place in _folders(folder / kind))
    done = Pruned([], [], [], freed, left)
    for entry in found:
        old = older_than is not None and now - entry.used > older_than
        much = keep is not None and done.left > keep
        if old or much:
            _remove(entry, done)
    return done


def _remove(entry: Entry, done: Pruned) -> None:
    try:
        with entry.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            entry.path.unlink()
    except BlockingIOError:
        done.in_use.append(entry)
        return
    except FileNotFoundError:  # another has removed it
        done.left -= entry.size
        return
    except OSError as error:
        done.failed.append((entry, error.strerror or str(error)))
        return
    done.removed.append(entry)
    done.freed += entry.size
    done.left -= entry.size


def _files(folder: Path) -> list[Path]:
    """What lies in a folder, and in those within."""
    found = [path for place in _folders(folder) for path in _inside(place)]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _folders(folder: Path) -> list[Path]:
    """A folder and those within."""
    within = [path for path in _inside(folder) if path.is_dir() and not path.is_symlink()]
    return [folder, *within]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_part(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".part")
