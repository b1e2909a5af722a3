"""A comparison's files: ``comparison.json``, ``comparison.csv``, ``comparison.md`` and the page
``compare.html``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metaforge.comparison.methods import Method
from metaforge.comparison.render import as_csv, as_markdown
from metaforge.errors import DataError
from metaforge.records import write_atomic, write_json
from metaforge.report import html


def default_folder(output: Path, found: dict[str, Any]) -> Path:
    """``<output>/<UTC stamp>-compare-<hash6>``: never one that holds another comparison."""
    digest = hashlib.blake2b(json.dumps(found).encode(), digest_size=3).hexdigest()
    return output / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-compare-{digest}"


def make_folder(path: Path) -> None:
    """``DataError`` where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{path}: cannot make this folder: {error.strerror}; give another with --out"
        ) from error


def save(found: dict[str, Any], rows: Sequence[Method], folder: Path) -> None:
    """Write all of them; what an earlier comparison left in the same folder is replaced."""
    make_folder(folder)
    write_json(folder / "comparison.json", found)
    write_atomic(folder / "comparison.csv", as_csv(found).encode())
    write_atomic(folder / "comparison.md", as_markdown(found).encode())
    html.write_comparison(folder, found, rows)
