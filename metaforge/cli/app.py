"""The verbs, each imported when it is called, and the options before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metaforge import __version__, discovery
from metaforge.errors import PluginError
from metaforge.place import idle
from metaforge.suggest import did_you_mean

if TYPE_CHECKING:
    from metaforge.plugins import PluginHost, PluginRecord

#: Verb -> where its command is, and its line in ``metaforge --help``.
VERBS = {
    "run": ("metaforge.cli.run:command", "Run a recipe, or go on with a run."),
    "validate": ("metaforge.cli.validate:command", "Find every problem of a recipe, run nothing."),
    "ls": ("metaforge.cli.ls:command", "List components and recipes."),
    "show": ("metaforge.cli.show:command", "Show a component's options and documentation."),
    "cp": ("metaforge.cli.cp:command", "Copy a shipped recipe, to change it."),
    "compare": ("metaforge.cli.compare:command", "Compare runs, or the methods of a grid."),
    "report": ("metaforge.cli.report:command", "Print a run's results, and make its page."),
    "cite": ("metaforge.cli.cite:command", "Print BibTeX for what a recipe uses."),
    "data": (
        "metaforge.cli.data:command",
        "Tell which published data are there, and fetch them.",
    ),
    "embed": ("metaforge.cli.embed:command", "Make features of images by a backbone."),
    "pretrain": ("metaforge.cli.pretrain:command", "Train a backbone for features."),
    "adapt": ("metaforge.cli.adapt:command", "Move a trained learner to your own samples."),
    "predict": ("metaforge.cli.predict:command", "Predict samples by an adapted model."),
    "eval": ("metaforge.cli.eval:command", "Evaluate a finished run on other targets."),
    "bundle": ("metaforge.cli.bundle:command", "Bundle a run for use without its data."),
    "export": ("metaforge.cli.export:command", "Export a model to TorchScript or ONNX."),
    "plugins": ("metaforge.cli.plugins:command", "List, show and check plugins."),
    "new": ("metaforge.cli.new:command", "Make a plugin of your own, tested and ready to install."),
    "cache": ("metaforge.cli.cache:command", "Say what the cache holds, and make room."),
    "schema": ("metaforge.cli.schema:command", "Print the JSON schema of recipes."),
    "doctor": ("metaforge.cli.doctor:command", "Check the environment, and say what is missing."),
}


class LazyGroup(click.Group):
    """The built-in verbs by table, and the plugins' commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *sorted(_plugin_commands())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in VERBS:
            module, _, attribute = VERBS[name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command
        offers = _plugin_commands().get(name, [])
        if len(offers) > 1:
            plugins = " and ".join(str(plugin) for plugin, _ in offers)
            raise PluginError(
                f"command {name!r} is offered by {plugins}: block one with -p no:NAME"
            )
        return offers[0][1] if offers else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx) if args and args[0] not in VERBS else list(VERBS)
        if args and args[0] not in known:
            ctx.fail(f"no such command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table's lines, so that no verb is imported for them."""
        rows = [(name, summary) for name, (_, summary) in VERBS.items()]
        plugin_rows = []
        for name, offers in sorted(_plugin_commands().items()):
            plugin, command = offers[0]
            plugin_rows.append((name, f"{command.get_short_help_str()} [{plugin.name}]"))
        host = _host()
        for plugin in host.plugins if host else ():
            for problem in plugin.problems:
                click.echo(f"note: {plugin}: {problem}", err=True)
        with formatter.section("Commands"):
            formatter.write_dl(rows + plugin_rows)


def _plugin_commands() -> Mapping[str, list[tuple[PluginRecord, click.Command]]]:
    """Commands of third parties, by name."""
    host = _host()
    return host.commands() if host else {}


def _host() -> PluginHost | None:
    """The plugin host, where there are others than the built-in plugins: those bring no command,
    so that for ``--help`` they can stay unloaded."""
    settings = discovery.current_settings()
    if not settings.files and not any(found.third_party for found in discovery.find_installed()):
        return None
    from metaforge.plugins import host

    return host()


def _blocked(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        if not value.startswith("no:") or value == "no:":
            message = f"expected no:NAME, found {value!r} (a plugin's file is given by --plugin)"
            raise click.BadParameter(message, ctx, param)
    names = tuple(value.removeprefix("no:") for value in values)
    _configure(ctx, blocked=names)
    return names


def _files(ctx: click.Context, param: click.Parameter, values: Sequence[Path]) -> tuple[Path, ...]:
    _configure(ctx, files=tuple(values))
    return tuple(values)


def _configure(ctx: click.Context, **given: Any) -> None:
    """Set the process's plugins. Options are read before verbs are looked up, so in time."""
    ctx.ensure_object(dict).update(given)
    discovery.configure(discovery.Settings.from_environment(**ctx.obj))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-p",
    "blocked",
    metavar="no:NAME",
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_blocked,
    help="Block a plugin. Repeatable.",
)
@click.option(
    "--plugin",
    "files",
    metavar="FILE",
    type=click.Path(path_type=Path),
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_files,
    help="Load a plugin from a Python file. Repeatable.",
)
@click.version_option(__version__, prog_name="metaforge")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Conditional meta-learning: any inner algorithm, any task weighting, any task kernel."""
    verb = ctx.invoked_subcommand
    if verb in VERBS and verb != "run" and idle():
        ctx.exit()  # of processes that torchrun started, the first does it
