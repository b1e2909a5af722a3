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


def output_problem(output: str | Path) -> str:
    """Why a folder cannot be written or made, or nothing."""
    folder = Path(output).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is a file, a folder is needed for the runs"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} is not writable: make it so, or set another output"
    return ""
