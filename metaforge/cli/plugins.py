"""``metaforge plugins``, and ``plugins show`` and ``plugins check``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from metaforge.errors import PluginError, one_line

if TYPE_CHECKING:
    from metaforge.plugins import PluginRecord
    from metaforge.testing.law import Law


@click.group(short_help="List, show and check plugins.", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with source hashes.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List every plugin found: loaded, blocked or failed, and what it brings."""
    if context.invoked_subcommand is not None:
        return
    from metaforge.cli.text import table
    from metaforge.plugins import host

    host().check_options()
    plugins = host().plugins
    if as_json:
        click.echo(json.dumps([_described(plugin) for plugin in plugins], indent=2))
    elif not plugins:
        click.echo("no plugin is installed, not even the built-in ones: run 'pip install -e .'")
    else:
        rows = [(p.name, f"{p.distribution} {p.version}", p.state, _brings(p)) for p in plugins]
        click.echo(table(rows, ("NAME", "DISTRIBUTION", "STATE", "BRINGS, OR WHY NOT")))


@command.command(short_help="Show one plugin: where from, what it brings, what is wrong.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a plugin, by its name or distribution:name, loaded or not."""
    from metaforge.plugins import host

    host().check_options()
    plugin = host().named(name)
    click.echo(json.dumps(_described(plugin), indent=2) if as_json else _page(plugin))


@command.command(short_help="Hold a plugin's components to the laws of their kinds.")
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[COMPONENT.KEY=VALUE]...")
def check(name: str, options: tuple[str, ...]) -> None:
    """Check every law of every component that a plugin brings, and tell each that is broken.

    A component is made with its default options; COMPONENT.KEY=VALUE gives others, such as
    cauchy.width=0.5. Ends with 4 if a law is broken.
    """
    from metaforge.testing.conformance import laws_of_plugin

    broken = sum(_checked(key, laws) for key, laws in laws_of_plugin(name, _given(options)).items())
    if broken:
        raise PluginError(f"plugin {name!r} breaks {broken} law{'s' * (broken > 1)}")


def _given(texts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Options by component; a key with dots is of a component within."""
    from metaforge.recipe.overrides import nested, parse_all

    parsed = parse_all(texts)
    for override in parsed:
        if len(override.path) < 2:
            raise PluginError(f"{override.label}: expected COMPONENT.KEY=VALUE")
    return nested(parsed)


def _checked(component: str, laws: Sequence[Law]) -> int:
    """Check a component's laws, say how they fare, and count the broken ones.

    Laws broken in the same words, as where it cannot be made, are told together.
    """
    broken: dict[str, list[str]] = {}
    for law in laws:
        try:
            law.check()
        except (Exception, SystemExit) as error:
            what = str(error) if isinstance(error, AssertionError) else one_line(error)
            broken.setdefault(what, []).append(law.name)
    count = sum(map(len, broken.values()))
    click.echo(f"{component}: {len(laws) - count} of {len(laws)} laws")
    for what, names in broken.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        click.echo(f"  broken: {names[0]}{others}: {what}")
    return count


def _page(plugin: PluginRecord) -> str:
    from metaforge.cli.text import indented, table

    rows = [
        ("distribution", f"{plugin.distribution} {plugin.version}".strip()),
        ("state", f"{plugin.state}: {plugin.reason}" if plugin.reason else plugin.state),
        ("interface", ", ".join(map(str, plugin.interfaces)) or "-"),
        ("package", plugin.package or "-"),
        ("source", plugin.source_hash or "-"),
        ("hooks", ", ".join(plugin.hooks) or "-"),
        ("commands", ", ".join(plugin.commands) or "-"),
        ("recipes", ", ".join(map(str, plugin.recipe_dirs)) or "-"),
    ]
    rows += [("problem", problem) for problem in plugin.problems]
    components = [(f"{c.kind} {c.name}", c.summary) for c in plugin.components]
    parts = [plugin.name, indented(table(rows))]
    return "\n".join([*parts, *([indented(table(components), "    ")] if components else [])])


def _brings(plugin: PluginRecord) -> str:
    components = [f"{component.kind} {component.name}" for component in plugin.components]
    commands = [f"command {name}" for name in plugin.commands]
    others = [] if components or commands or plugin.problems else list(plugin.hooks)
    brings = ", ".join([*components, *commands, *others])
    return "; ".join(filter(None, [plugin.reason or brings, *plugin.problems]))


def _described(plugin: PluginRecord) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "interfaces": list(plugin.interfaces),
        "state": plugin.state,
        "reason": plugin.reason,
        "problems": list(plugin.problems),
        "components": [{"kind": c.kind, "name": c.name} for c in plugin.components],
        "hooks": list(plugin.hooks),
        "commands": list(plugin.commands),
        "source_hash": plugin.source_hash,
    }
