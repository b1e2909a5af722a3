"""Whether the packages that trackers write with are here. Torch-free."""

from __future__ import annotations

from metaforge.components import Context
from metaforge.optional import MLFLOW, TENSORBOARD, OptionalPackage
from metaforge.options import Options


def tensorboard(options: Options, context: Context) -> list[str]:
    return _missing(TENSORBOARD)


def mlflow(options: Options, context: Context) -> list[str]:
    return _missing(MLFLOW)


def _missing(package: OptionalPackage) -> list[str]:
    return [package.missing] if package.missing else []
