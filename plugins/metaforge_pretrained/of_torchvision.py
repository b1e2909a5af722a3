"""The backbone ``torchvision``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from metaforge.components import Context
from metaforge.errors import PluginError, one_line
from metaforge.modules import without_head
from metaforge.optional import TORCHVISION
from metaforge.suggest import did_you_mean
from metaforge_pretrained.base import Drawn, Pretrained, fill, imported
from metaforge_pretrained.options import PretrainedOptions


class Torchvision(Pretrained):
    """phi: ``[n, 3, height, width]`` in [0, 1] to what the network's last affine layer sees.

    The size, and the mean and standard deviation that inputs are normalised by, are those of the
    network's default weights; whole images are brought to the size, none is cropped. Nothing is
    fetched unless ``download: true``. Raises ``PluginError`` for a network that torchvision does
    not have, cannot fetch or that does not end in an affine layer, ``DataError`` for weights that
    are not its own.
    """

    def __init__(self, options: PretrainedOptions, context: Context):
        super().__init__(options, context)
        models = imported(TORCHVISION, "torchvision.models")
        name = options.model
        if name not in (known := models.list_models(module=models)):
            told = did_you_mean(name, known)
            raise PluginError(f"backbone torchvision: it has no classifier {name!r}{told}")
        weights = models.get_model_weights(name).DEFAULT
        try:
            with Drawn(context, name):
                network = models.get_model(name, weights=weights if options.download else None)
        except Exception as error:
            raise PluginError(
                f"backbone torchvision: model {name!r} cannot be made: {one_line(error)}"
            ) from error
        found = weights.transforms()
        size = options.size or found.crop_size[0]
        body = _headless(network.eval(), size, name)
        if isinstance(options.weights, Path):
            heads = tuple(_names(network) - _names(body))
            fill(body, options.weights, heads, f"backbone torchvision, model {name!r}")
        self._set(body, found.mean, found.std, (size, size))


def _headless(network: nn.Module, size: int, name: str) -> nn.Module:
    body = without_head(network, torch.zeros(1, 3, size, size))
    if body is None:
        raise PluginError(
            f"backbone torchvision: model {name!r} does not end in an affine layer, so that what "
            "its features are cannot be told: take another"
        )
    return body


def _names(network: Any) -> set[str]:
    """The layers that hold tensors of their own."""
    return {name.rpartition(".")[0] for name in network.state_dict()}
