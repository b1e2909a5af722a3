"""Whether the files of a published data set are there, and fetching them. Torch-free."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metaforge.errors import DataError, MetaforgeError, one_line

State = Literal["whole", "in part", "damaged", "absent"]


@dataclass(frozen=True)
class Placement:
    """What is known of a data set's files.

    folder    where they are looked for
    state     whole: all that was published; in part: what is there can be used, and more was
              published; damaged: something of it is there, and cannot be used; absent
    found     what was found, or what is wrong with it, a line each
    layouts   the forms of the files that are read, a line each
    source    where they come from
    licence   of the data
    download  fetches the files into a folder that is given; None where nothing does
    whole_in  the state that files in another folder would be in
    """

    folder: Path
    state: State
    found: tuple[str, ...]
    layouts: tuple[str, ...]
    source: str
    licence: str
    download: Callable[[Path], None] | None = None
    whole_in: Callable[[Path], Placement] | None = None


def fetch(name: str, placed: Placement) -> tuple[Path, ...]:
    """Download a data set's files into a folder beside their place, look at them there, and move
    them to their place once they are whole: what they are called there.

    What was interrupted, or is not whole, leaves nothing. Raises ``DataError`` for that, and for
    files that are in the way.
    """
    if placed.download is None or placed.whole_in is None:
        raise DataError(f"{name}: nothing downloads it; {placed.source}")
    was_there = placed.folder.is_dir()
    try:
        placed.folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=placed.folder))
    except OSError as error:
        raise DataError(
            f"{name}: {placed.folder} cannot be written ({error.strerror}): give another path"
        ) from error
    try:
        _download(name, placed.download, part)
        got = placed.whole_in(part)
        if got.state != "whole":
            told = "\n".join(f"  {line}".replace(f"{part}{os.sep}", "") for line in got.found)
            raise DataError(f"{name}: what was downloaded is not whole, and is not kept:\n{told}")
        return _moved(name, part, placed.folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(part)
            if not was_there:
                placed.folder.rmdir()  # which keeps one that has the files


def _download(name: str, download: Callable[[Path], None], part: Path) -> None:
    """Whatever a downloader of another package raises becomes one line."""
    try:
        download(part)
    except MetaforgeError as error:
        raise DataError(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{name}: the download failed, nothing is kept: {one_line(error)}"
        ) from error


def _moved(name: str, part: Path, folder: Path) -> tuple[Path, ...]:
    entries = sorted(part.iterdir())
    taken = [entry.name for entry in entries if (folder / entry.name).exists()]
    if taken:
        raise DataError(
            f"{name}: {', '.join(taken)} of {folder} would be overwritten: move it away, or give "
            "another path"
        )
    for entry in entries:
        entry.rename(folder / entry.name)
    return tuple(folder / entry.name for entry in entries)
