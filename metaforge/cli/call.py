"""A verb is run here, its errors turned into messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from metaforge import stops
from metaforge.cli import output
from metaforge.cli.app import app
from metaforge.errors import Followed, Interrupted, MetaforgeError, RecipeError, printable


def call(arguments: Sequence[str] | None) -> int:
    """Run the command line and return its exit code; see ``metaforge.cli.main``."""
    with output.guarded(), stops.outliving_terminal():
        try:
            return _verb(arguments)
        except MetaforgeError as error:  # nobody to tell: standard error cannot be written
            return error.exit_code


def _verb(arguments: Sequence[str] | None) -> int:
    try:
        code = app.main(args=arguments, prog_name="metaforge", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except output.ReaderLeft as error:  # of our output, as `| head` does
        return error.exit_code
    except Followed as error:  # another process tells of it
        return error.exit_code
    except MetaforgeError as error:
        _show(error)
        return error.exit_code
    except click.ClickException as error:
        _misplaced(error).show()
        return error.exit_code
    except click.Abort:  # what click makes of Ctrl-C, once it has ended the line
        click.echo("interrupted", err=True)
        return Interrupted.exit_code


def _misplaced(error: click.ClickException) -> click.ClickException:
    """The error, with the right place of an option that stands behind the verb."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        if name in {known for option in app.params for known in option.opts}:
            where = f"{name} stands before the verb (metaforge {name} ...)"
            return click.UsageError(where, error.ctx)
    return error


def _show(error: MetaforgeError) -> None:
    if os.environ.get("METAFORGE_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    prefix = "" if isinstance(error, RecipeError) else "error: "
    click.echo(f"{prefix}{printable(str(error))}", err=True)
    if isinstance(error, RecipeError) and (count := error.count) > 1:
        click.echo(f"{count} problems", err=True)
