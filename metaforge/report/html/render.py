"""Templates filled in: whatever comes from users or data is escaped by Jinja2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

import metaforge

_FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Table:
    """A table of texts, with or without a header; the first cell of a row names it."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def render(template: str, **values: Any) -> str:
    """A whole page, the style sheet within."""
    style = (_FOLDER / "style.css").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template(template)
        .render(style=style, version=metaforge.__version__, **values)
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
