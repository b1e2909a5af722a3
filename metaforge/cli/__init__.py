"""The command line: ``main`` runs a verb and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from metaforge.errors import Interrupted, MetaforgeError, RecipeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 ok, 1 other, 2 usage or recipe, 3 data, 4 plugin, 5 numeric, 130 interrupted. With
    ``METAFORGE_DEBUG=1`` an error's traceback is shown as well.
    """
    from metaforge.cli.app import app

    try:
        code = app.main(args=arguments, prog_name="metaforge", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except MetaforgeError as error:
        _show(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return Interrupted.exit_code
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _show(error: MetaforgeError) -> None:
    if os.environ.get("METAFORGE_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    prefix = "" if isinstance(error, RecipeError) else "error: "
    click.echo(f"{prefix}{error}", err=True)
    if isinstance(error, RecipeError) and len(error.problems) > 1:
        click.echo(f"{len(error.problems)} problems", err=True)
