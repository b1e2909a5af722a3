"""``metaforge doctor``."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

import click

from metaforge.errors import MetaforgeError
from metaforge.optional import OPTIONAL


@click.command(short_help="Check the environment, and say what is missing.")
@click.option(
    "--numerics", is_flag=True, help="Run a small recipe in float32 and float64, and compare."
)
def command(numerics: bool) -> None:
    """Print versions and devices, and for what is missing the command that brings it.

    Ends with 1 if something required is missing or a plugin fails; with --numerics, with 5 if
    the two precisions are further apart than rounding explains.
    """
    if numerics:
        _numerics()
        return
    from metaforge.cli.text import table
    from metaforge.plugins import host

    click.echo(table(list(_environment())))
    faults = [*_unmet(), *_failed_plugins()]
    for fault in faults:
        click.echo(f"missing: {fault}")
    for plugin in host().plugins:
        for problem in plugin.problems:
            click.echo(f"note: {plugin}: {problem}")
    for package in OPTIONAL:
        if find_spec(package.name) is None:
            click.echo(
                f"optional: {package.name}, for {package.serves}; install it with\n"
                f"  {package.command}"
            )
    if faults:
        raise click.exceptions.Exit(MetaforgeError.exit_code)
    click.echo("everything required is here")


def _numerics() -> None:
    from metaforge.cli.text import table
    from metaforge.errors import NumericError
    from metaforge.numerics import measure

    found = measure()
    rows = [(one.what, f"{one.found:.1e}", f"{one.expected:.1e}", one.why) for one in found]
    click.echo(table(rows, ("FLOAT32", "DIFFERS BY", "UP TO", "IS EXPECTED OF")))
    if odd := [one.what for one in found if not one.explained]:
        raise NumericError(
            f"float32 differs from float64 by more than rounding explains: {', '.join(odd)}; look "
            "at the versions of torch and of its BLAS (metaforge doctor)"
        )
    click.echo("float32 differs from float64 as rounding explains: shares of each figure's size")


def _environment() -> Iterator[tuple[str, str]]:
    from metaforge import __version__
    from metaforge.components import Context
    from metaforge.recipe.machine import unusable

    yield "metaforge", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    yield "processors", str(os.cpu_count())
    yield "torch", _torch()
    required = ("numpy", "scipy", "pydantic", "pluggy", "click")
    for name in (*required, *(package.name for package in OPTIONAL)):
        yield name, _version(name)
    cache = Context().cache_dir
    state = unusable(cache) or ("is there" if cache.is_dir() else "not made yet")
    yield "cache", f"{cache} ({state})"
    yield "METAFORGE_DATA", os.environ.get("METAFORGE_DATA", "not set")


def _torch() -> str:
    try:
        import torch
    except ImportError as error:
        return f"cannot be imported: {error}"
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    return f"{torch.__version__}, {torch.get_num_threads()} threads, {cuda}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed" if find_spec(name) else "not installed"


def _unmet() -> Iterator[str]:
    """What metaforge itself requires and this environment does not have."""
    from metaforge.discovery import ENGINE, unmet_requirements

    try:
        distribution = metadata.distribution(ENGINE)
    except metadata.PackageNotFoundError:
        yield "metaforge is not installed, so it has no plugins; run: pip install -e ."
        return
    for fault in unmet_requirements(distribution):
        yield f"metaforge {fault}; run: pip install --upgrade metaforge"


def _failed_plugins() -> Iterator[str]:
    from metaforge.plugins import host

    host().check_options()
    for plugin in host().plugins:
        if plugin.state == "failed":
            yield f"{plugin}: {plugin.reason}"
