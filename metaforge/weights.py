"""The option of a backbone that names its weights. Torch-free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metaforge.components import Context
from metaforge.options import Options


def missing_weights(options: Options, context: Context) -> list[str]:
    """A weights file that is not there; for ``Component.check``."""
    path: Any = getattr(options, "weights", None)
    if isinstance(path, Path) and not path.is_file():
        return [f"weights: {path} is no file; `metaforge pretrain` makes one"]
    return []
