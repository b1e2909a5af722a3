"""Downloads by torchvision and learn2learn, which are imported here alone.

Of learn2learn only the function that fetches a file is used: its data sets would load the pickles
that they fetch, and with them run whatever is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from metaforge.errors import DataError, one_line
from metaforge.optional import LEARN2LEARN, TORCHVISION

#: Where learn2learn's authors keep copies of both ImageNet sets.
_RECORD = "https://zenodo.org/record/7978538/files"


def omniglot(folder: Path) -> None:
    """Both sets of alphabets, as ``omniglot-py``."""
    datasets = _torchvision()
    for background in (True, False):
        datasets.Omniglot(str(folder), background=background, download=True)


def cifar100(folder: Path) -> None:
    """``cifar-100-python``, whose sums torchvision checks; the archive is not kept."""
    _torchvision().CIFAR100(str(folder), train=True, download=True)
    (folder / "cifar-100-python.tar.gz").unlink(missing_ok=True)


def mini_imagenet(folder: Path) -> None:
    fetch = _learn2learn()
    for split in ("train", "validation", "test"):
        name = f"mini-imagenet-cache-{split}.pkl"
        fetch(f"{_RECORD}/{name}", str(folder / name))


def tiered_imagenet(folder: Path) -> None:
    fetch, into = _learn2learn(), folder / "tiered-imagenet"
    into.mkdir()
    for split in ("train", "val", "test"):
        for name in (f"{split}_labels.pkl", f"{split}_images_png.pkl"):
            fetch(f"{_RECORD}/tiered-imagenet-{name}", str(into / name))


def _torchvision() -> Any:
    try:
        return import_module("torchvision.datasets")
    except Exception as error:  # beside another torch it raises what it will
        raise DataError(
            f"torchvision downloads it, and cannot be imported ({one_line(error)}): "
            f"{TORCHVISION.command}; or place the files yourself"
        ) from error


def _learn2learn() -> Callable[[str, str], None]:
    try:
        fetch: Callable[[str, str], None] = import_module("learn2learn.data.utils").download_file
    except Exception as error:
        raise DataError(
            f"learn2learn downloads it, and cannot be imported ({one_line(error)}): "
            f"{LEARN2LEARN.command}; or place the files yourself"
        ) from error
    return fetch
