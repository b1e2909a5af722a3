"""The one place that imports higher (Grefenstette et al. 2019, arXiv:1910.01727)."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.optional import HIGHER
from metaforge.options import Options


def missing(options: Options, context: Context) -> list[str]:
    """What the component lacks on this machine."""
    return [HIGHER.missing] if HIGHER.missing else []


def optimizers() -> Any:
    """higher's module ``optim``.

    Raises ``PluginError`` with the command that installs higher, if it is missing.
    """
    if HIGHER.missing:
        raise PluginError(f"unrolled: {HIGHER.missing}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sources hold invalid escapes
        return import_module("higher.optim")
