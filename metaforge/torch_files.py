"""What ``torch.save`` wrote, from files that nobody vouches for: tensors and plain values alone."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from metaforge.errors import DamagedFile, one_line


def read_saved(path: Path, device: str = "cpu") -> Any:
    """The object that a file holds; nothing in it is executed.

    Raises ``DamagedFile`` where it is not whole, more than tensors and plain values, or larger
    unpacked than it is.
    """
    try:
        _refuse_packed(path)
        return torch.load(path, map_location=device, weights_only=True)
    except DamagedFile:
        raise
    except Exception as error:  # of a damaged file, torch's reader raises whatever comes of it
        raise DamagedFile(f"{path} is no file of tensors alone ({one_line(error)})") from error


def _refuse_packed(path: Path) -> None:
    """torch's reader unpacks what is packed, whatever its size; ``torch.save`` packs nothing."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > path.stat().st_size:
        raise DamagedFile(
            f"{path} is packed, or claims more than it holds: not as torch.save writes it"
        )
