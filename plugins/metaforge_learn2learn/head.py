"""A module in two: the features, and the affine head that ANIL adapts."""

from __future__ import annotations

import copy

import torch
from torch import nn

from metaforge import modules
from metaforge.errors import PluginError
from metaforge.tasks import TaskShape


@torch.no_grad()
def split(module: nn.Module, shape: TaskShape) -> tuple[nn.Module, nn.Module, str]:
    """(features, head, the head's name) with module(x) = head(features(x)).

    The head is the ``nn.Linear`` that runs last; features is a copy of the module in which
    the identity stands in its place. Found by a run, whatever the module's classes.

    Raises ``PluginError`` if there is none, if something runs after it, or if it shares
    parameters with the rest.
    """
    features = copy.deepcopy(module)
    x = modules.random_inputs(features, shape, 4)
    outputs = features(x)
    name = _last_affine(features, x)
    if name is None:
        raise PluginError(
            f"learn2learn: adapt: head needs an nn.Linear; {_title(module)} runs none"
        )
    head = features.get_submodule(name)
    if not name:
        return nn.Identity(), head, name
    place, _, attribute = name.rpartition(".")
    setattr(features.get_submodule(place), attribute, nn.Identity())
    if {id(p) for p in head.parameters()} & {id(p) for p in features.parameters()}:
        raise PluginError(
            f"learn2learn: adapt: head: {name!r} of {_title(module)} shares parameters with "
            "the rest"
        )
    if not _is_composed_of(outputs, features, head, x):
        raise PluginError(
            f"learn2learn: adapt: head needs a model that ends in an nn.Linear; {_title(module)} "
            f"goes on after {name!r}, or runs it more than once"
        )
    return features, head, name


def _last_affine(module: nn.Module, x: torch.Tensor) -> str | None:
    """The name of the ``nn.Linear`` that is called last."""
    called: list[str] = []
    hooks = [
        layer.register_forward_hook(lambda *_, name=name: called.append(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    module(x)
    for hook in hooks:
        hook.remove()
    return called[-1] if called else None


def _is_composed_of(
    outputs: torch.Tensor, features: nn.Module, head: nn.Module, x: torch.Tensor
) -> bool:
    try:
        found = head(features(x))
    except RuntimeError:  # shapes that do not fit
        return False
    return found.shape == outputs.shape and torch.allclose(found, outputs, rtol=1e-3, atol=1e-6)


def _title(module: nn.Module) -> str:
    return type(module).__name__
