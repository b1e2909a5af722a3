"""The option ``--metaforge-plugin`` of pytest, for ``metaforge.testing.conformance``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from metaforge.testing.law import Law


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("metaforge").addoption(
        "--metaforge-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="a plugin whose components metaforge.testing.conformance checks; repeatable",
    )


def chosen(config: pytest.Config) -> Iterator[tuple[str, list[Law]]]:
    """The laws of the components of every plugin asked for.

    Raises ``UsageError`` for one that is unknown, failed or without components, and for none.
    """
    from metaforge.errors import MetaforgeError
    from metaforge.testing.conformance import laws_of_plugin

    names = config.getoption("--metaforge-plugin")
    if not names:
        raise pytest.UsageError("say which plugin is checked: --metaforge-plugin NAME")
    for name in names:
        try:
            yield from laws_of_plugin(name).items()
        except MetaforgeError as error:
            raise pytest.UsageError(f"--metaforge-plugin {name}: {error}") from None
