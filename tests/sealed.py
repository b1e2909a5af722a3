"""Files of a run changed as by someone who knows of their seals. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metaforge.seals import opened, sealed


def change(path: Path, how: Callable[[Any], object]) -> None:
    """Alter what a JSON file holds, and seal it again if it was."""
    found = opened(path.read_text())
    how(found.value)
    path.write_text(json.dumps(sealed(found.value) if found.sealed else found.value))


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON-lines file."""
    return [opened(line).value for line in path.read_text().splitlines()]
