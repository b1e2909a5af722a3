"""``metaforge data``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from metaforge.components import Component
    from metaforge.placement import Placement


@click.command(short_help="Tell which published data are there, and fetch them.")
@click.argument("name", required=False)
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--download", is_flag=True, help="Fetch the files, if they are not there.")
def command(name: str | None, options: tuple[str, ...], download: bool) -> None:
    """Tell whether a data set's files are there and whole, where they are looked for, in which
    forms, and under which licence; without NAME, of all of them.

    KEY=VALUE are options of the data set, such as path=FOLDER. Ends with 3 where the files of NAME
    are not whole.
    """
    from metaforge.errors import DataError

    if name is None:
        if download:
            raise click.UsageError("--download needs the NAME of a data set")
        click.echo(_all())
        return
    component = _component(name)
    placed = _placed(component, options)
    if download and placed.state != "whole":
        from metaforge.placement import fetch

        for path in fetch(component.name, placed):
            click.echo(f"downloaded {path}", err=True)
        placed = _placed(component, options)
    click.echo(_page(component, placed))
    if placed.state != "whole":
        raise click.exceptions.Exit(DataError.exit_code)


def _component(name: str) -> Component:
    from metaforge import registry

    component = registry.get("dataset", name)
    if component.files is None:
        having = ", ".join(other.name for other in _having_files())
        raise click.UsageError(
            f"{name!r} is not made of published files; those that are: {having or 'none'}"
        )
    return component


def _having_files() -> list[Component]:
    from metaforge.plugins import host

    offered = (component for component, _ in host().components())
    return [one for one in offered if one.kind == "dataset" and one.files is not None]


def _placed(component: Component, texts: tuple[str, ...]) -> Placement:
    from metaforge.components import Context, load_attribute
    from metaforge.recipe.overrides import nested, parse_all
    from metaforge.recipe.resolve import checked_options

    context = Context()
    given = nested(parse_all(texts))
    options = checked_options(component, given, lambda key: context.base_dir)
    assert component.files is not None
    placed: Placement = load_attribute(component.files)(options, context)
    return placed


def _all() -> str:
    from metaforge.cli.text import table
    from metaforge.errors import MetaforgeError, one_line

    rows = []
    for component in _having_files():
        try:
            placed = _placed(component, ())
        except MetaforgeError as error:
            rows.append((component.name, "unknown", one_line(error)))
        else:
            rows.append((component.name, placed.state, str(placed.folder)))
    return table(rows, ("data set", "files", "looked for in"))


def _page(component: Component, placed: Placement) -> str:
    from metaforge.cli.text import table

    rows: list[tuple[Any, ...]] = [
        ("files", placed.state),
        ("looked for in", str(placed.folder)),
        *_lines("found", placed.found or ("nothing of it",)),
        *_lines("forms read", placed.layouts),
        ("source", placed.source),
        ("licence", placed.licence),
    ]
    if placed.state != "whole" and placed.download is not None:
        rows.append(("download", f"metaforge data {component.name} --download"))
    return f"{component.name}: {component.summary}\n{table(rows)}"


def _lines(name: str, lines: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name if not number else "", line) for number, line in enumerate(lines)]
