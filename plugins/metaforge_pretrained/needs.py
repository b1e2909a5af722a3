"""Whether the packages and files that these backbones need are here. Torch-free."""

from __future__ import annotations

from metaforge.components import Context
from metaforge.optional import TIMM, TORCHVISION, OptionalPackage
from metaforge.weights import missing_weights
from metaforge_pretrained.options import PretrainedOptions


def timm(options: PretrainedOptions, context: Context) -> list[str]:
    return _missing(TIMM, options, context)


def torchvision(options: PretrainedOptions, context: Context) -> list[str]:
    return _missing(TORCHVISION, options, context)


def _missing(package: OptionalPackage, options: PretrainedOptions, context: Context) -> list[str]:
    return [line for line in (package.missing, *missing_weights(options, context)) if line]
