"""What a training of a backbone goes on from: a file beside its weights, whole or absent."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from metaforge.components import Context
from metaforge.records import write_atomic

#: What reading a damaged file may raise.
_BROKEN = (
    pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError, TypeError
)  # fmt: skip


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
        state = torch.load(path, map_location=context.device, weights_only=True)
        if state["key"] == key:
            return dict(state)
        context.report(f"{path}: of a training with other settings or data: starting anew")
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
    ):
        context.report(f"{path} is damaged: starting anew")
    return None
