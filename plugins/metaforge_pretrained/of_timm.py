"""The backbone ``timm``."""

from __future__ import annotations

from pathlib import Path

from metaforge.components import Context
from metaforge.errors import PluginError, one_line
from metaforge.optional import TIMM
from metaforge.suggest import did_you_mean
from metaforge_pretrained.base import Drawn, Pretrained, fill, imported
from metaforge_pretrained.options import PretrainedOptions


class Timm(Pretrained):
    """phi: ``[n, c, height, width]`` in [0, 1] to the network's features before its classifier.

    The size, and the mean and standard deviation that inputs are normalised by, are those of the
    network's own configuration; whole images are brought to the size, none is cropped. Nothing is
    fetched unless ``download: true``. Raises ``PluginError`` for a network that timm does not have
    or cannot fetch, ``DataError`` for weights that are not its own.
    """

    def __init__(self, options: PretrainedOptions, context: Context):
        super().__init__(options, context)
        timm, data = imported(TIMM), imported(TIMM, "timm.data")
        name = options.model
        if not timm.is_model(name):
            known = timm.list_models()
            raise PluginError(f"backbone timm: it has no model {name!r}{did_you_mean(name, known)}")
        try:
            with Drawn(context, name):
                network = timm.create_model(name, pretrained=options.download, num_classes=0)
        except Exception as error:
            raise PluginError(
                f"backbone timm: model {name!r} cannot be made: {one_line(error)}"
            ) from error
        found = data.resolve_model_data_config(network)
        if isinstance(options.weights, Path):
            heads = getattr(network, "pretrained_cfg", {}).get("classifier", ())
            heads = (heads,) if isinstance(heads, str) else tuple(heads or ())
            fill(network, options.weights, heads, f"backbone timm, model {name!r}")
        self._set(network, found["mean"], found["std"], found["input_size"][1:])
