"""``metaforge plugins``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from metaforge.plugins import PluginRecord


@click.command(short_help="List plugins, and why any is left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with source hashes.")
def command(as_json: bool) -> None:
    """List every plugin found: loaded, blocked or failed, and what it brings."""
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
        "state": plugin.state,
        "reason": plugin.reason,
        "problems": list(plugin.problems),
        "components": [{"kind": c.kind, "name": c.name} for c in plugin.components],
        "hooks": list(plugin.hooks),
        "commands": list(plugin.commands),
        "source_hash": plugin.source_hash,
    }
