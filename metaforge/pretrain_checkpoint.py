"""What a training of a backbone goes on from: a file beside its weights, whole or absent."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.records import write_atomic
from metaforge.torch_files import read_saved


def save(path: Path, key: str, state: dict[str, Any]) -> None:
    """``key`` names all that the training depends on."""
    file = BytesIO()
    torch.save({"key": key, **state}, file)
    write_atomic(path, file.getvalue())


def read(path: Path, key: str, context: Context) -> dict[str, Any] | None:
    """What ``save`` wrote under the same key; None where there is nothing, or something else, which
    is told. Tensors and plain values alone are read: nothing in a file is executed."""
    if not path.is_file():
        return None
    try:
        state = read_saved(path, context.device)
        if state["key"] == key:
            return dict(state)
        context.report(f"{path}: of a training with other settings or data: starting anew")
    except (DataError, KeyError, TypeError, ValueError):
        context.report(f"{path} is damaged: starting anew")
    return None
