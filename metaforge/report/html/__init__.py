"""One HTML file for a run, one for a comparison: whole, offline, readable anywhere. Torch-free.

``material`` reads the folder, ``run_figures`` and ``targets_shown`` draw (``charts`` and ``maps``,
on ``axes``, ``marks`` and ``svg``), ``run_page`` fills the template. Nothing here knows the time,
so that the same folder gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaforge.comparison.methods import Method

__all__ = ["write_comparison", "write_run"]


def write_run(run: Path, results: dict[str, Any] | None = None, to: Path | None = None) -> Path:
    """Write the page of a run's folder to a file (by default ``report.html`` in the folder), whole.

    ``results`` are given by who has them before the folder says that the run is done. Raises
    ``DataError`` for unfinished or damaged folders, and where the file cannot be written.
    """
    from metaforge.records import write_atomic
    from metaforge.report.html import material, run_page

    page = run_page.page(material.read(run, results))
    path = run / "report.html" if to is None else to
    write_atomic(path, page.encode())
    return path


def write_comparison(folder: Path, found: dict[str, Any], methods: Sequence[Method]) -> Path:
    """Write the page of a comparison, ``compare.html`` in its folder, whole."""
    from metaforge.records import write_atomic
    from metaforge.report.html import comparison_page

    path = folder / "compare.html"
    write_atomic(path, comparison_page.page(found, methods).encode())
    return path
