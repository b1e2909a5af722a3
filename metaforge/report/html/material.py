"""What a page of a run is made from: the files of its folder, each checked as it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaforge import run_files
from metaforge.errors import DamagedFile, MetaforgeError, one_line
from metaforge.picture_file import Picture
from metaforge.records import read_json, read_lines
from metaforge.report.html.units import Unit
from metaforge.rundir import RunDir


@dataclass(frozen=True)
class Material:
    """A finished run. ``picture`` is None where ``unpictured`` says why; ``citations`` are BibTeX
    entries, none where ``uncited`` says why."""

    path: Path
    results: dict[str, Any]
    records: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    env: dict[str, Any]
    picture: dict[str, Any] | None
    unpictured: str
    recipe: str
    resolved: str
    citations: tuple[str, ...]
    uncited: str

    @property
    def unit(self) -> Unit:
        return Unit.of(self.results)


def read(path: Path, results: dict[str, Any] | None = None) -> Material:
    """Of a run's folder, and of ``results`` where these are known already.

    Raises ``DataError`` for folders that are no finished run's and for damaged files.
    """
    folder = RunDir.open(path)
    results = folder.results if results is None else results
    records = read_lines(path / "targets.jsonl", run_files.Target)
    if not records:
        raise DamagedFile(f"{path / 'targets.jsonl'}: damaged: it holds no target")
    metrics, picture = path / "metrics.jsonl", folder.picture
    citations, uncited = _citations(path)
    return Material(
        path=path,
        results=results,
        records=records,
        metrics=read_lines(metrics, run_files.Metrics) if metrics.exists() else [],
        env=read_json(path / "env.json", run_files.Env),
        picture=read_json(picture, Picture) if picture.exists() else None,
        unpictured="" if picture.exists() else _unpictured(picture),
        recipe=_text(path / "recipe.yaml"),
        resolved=_text(path / "resolved.yaml"),
        citations=citations,
        uncited=uncited,
    )


def _unpictured(picture: Path) -> str:
    return (
        f"This run's folder has no {picture.parent.name}/{picture.name}: it was made by a version "
        "of metaforge that kept none, or it could not be made (a note says so). Make the run anew "
        "from its resolved.yaml to see what was recalled."
    )


def _text(path: Path) -> str:
    """Empty for a file that is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read: {error.strerror}") from error


def _citations(path: Path) -> tuple[tuple[str, ...], str]:
    from metaforge.citations import entries
    from metaforge.recipe import load

    try:
        return tuple(entries(load(path / "resolved.yaml", check=False).chosen)), ""
    except MetaforgeError as error:
        return (), f"Not all components of the recipe are here: {one_line(error)}"
