"""What a recipe asks of the machine that can be told without torch."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path


def device_problem(device: str) -> str:
    """Why a device cannot be had, or nothing: the name of torch's version says that it was
    built for the CPU alone. Whether there is such a device the run sees, before all else."""
    if device.startswith("cuda"):
        try:
            version = metadata.version("torch")
        except metadata.PackageNotFoundError:
            return ""
        if version.endswith("+cpu"):
            return (
                f"{device!r} asked for, but the torch installed here, {version}, is built without "
                "CUDA: set auto or cpu, or install one with CUDA"
            )
    if device.startswith("mps") and sys.platform != "darwin":
        return f"{device!r} asked for, which macOS alone has: set auto, cpu or cuda"
    return ""


def unusable(folder: Path) -> str | None:
    """Why nothing can be written in a folder, which need not be there yet; None where it can."""
    folder = folder.absolute()
    # os.path, as a path that cannot even be looked at is no error of its own there.
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not os.path.isdir(existing):
        return f"{existing} is a file, a folder is needed"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} is not writable"
    return None
