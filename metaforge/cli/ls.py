"""``metaforge ls``."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import dropwhile, takewhile
from pathlib import Path

import click

Row = tuple[str, str, str, str]
RECIPE = "recipe"
_SENTENCE_END = re.compile(r"(?<!et al)[.;](?=\s|$)")


@click.command(short_help="List components and recipes.")
@click.argument("kind", required=False)
@click.argument("glob", required=False)
def command(kind: str | None, glob: str | None) -> None:
    """List what is on offer: everything, one KIND, or the names that match GLOB.

    KIND is dataset, backbone, model, inner_algorithm, task_kernel, task_weighting, tracker
    or recipe; data, inner, kernel and weighting will do.
    """
    from metaforge.cli.text import table
    from metaforge.components import canonical_kind

    if kind and glob is None and any(character in kind for character in "*?["):
        kind, glob = None, kind
    wanted = canonical_kind(kind, (RECIPE,)) if kind else None
    rows = [
        row
        for row in (*_components(), *_recipes())
        if wanted in (None, row[0]) and fnmatchcase(row[1], glob or "*")
    ]
    if not rows:
        raise click.UsageError(f"nothing matches {' '.join(filter(None, (kind, glob)))!r}")
    click.echo(table(rows, ("KIND", "NAME", "FROM", "SUMMARY")))


def _components() -> list[Row]:
    from metaforge.components import KINDS
    from metaforge.plugins import host

    rows = [(c.kind, c.name, plugin.distribution, c.summary) for c, plugin in host().components()]
    return sorted(rows, key=lambda row: (KINDS.index(row[0]), *row[1:]))


def _recipes() -> list[Row]:
    from metaforge.recipe.find import shipped_recipes

    return [
        (RECIPE, name, str(path.parent), summary(path))
        for name, paths in shipped_recipes().items()
        for path in paths
    ]


def summary(path: Path) -> str:
    """The first sentence of a recipe's opening comment, past the command that runs it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = [line.removeprefix("#").strip() for line in takewhile(_is_comment, lines)]
    said = dropwhile(lambda text: not text or text.startswith("metaforge "), comment)
    return _SENTENCE_END.split(" ".join(takewhile(bool, said)), maxsplit=1)[0]


def _is_comment(line: str) -> bool:
    return line.startswith("#")
