"""What the two share: normalised inputs, and weights read from files of others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metaforge.components import Context
from metaforge.errors import DataError, PluginError, one_line
from metaforge.image_files import ImageForm
from metaforge.network_backbone import NetworkBackbone, fit
from metaforge.optional import OptionalPackage
from metaforge.records import load_tensors
from metaforge.seeding import derive
from metaforge.torch_files import read_saved
from metaforge_pretrained.options import PretrainedOptions

#: Where files of weights keep the tensors, if not at the top.
_WITHIN = ("state_dict", "model_state_dict", "model")


class Pretrained(NetworkBackbone):
    """A network whose inputs are ``(x - mean) / sd``, channel by channel.

    ``_set`` is to be called with it. Raises ``PluginError`` without the package.
    """

    options: PretrainedOptions

    def _set(self, network: nn.Module, mean: Any, sd: Any, size: Any) -> None:
        """``size`` is (height, width); one given in the options goes before it."""
        height, width = size if self.options.size is None else [self.options.size] * 2
        channels = len(mean)
        self.images = ImageForm(channels, int(height), int(width))
        device = self.context.device
        self.network = network.eval().to(device)
        self._mean = torch.tensor(mean, dtype=torch.float32, device=device).view(1, -1, 1, 1)
        self._sd = torch.tensor(sd, dtype=torch.float32, device=device).view(1, -1, 1, 1)
        self.made_by = repr((self.options.model, list(mean), list(sd), self.images.shape))
        with torch.no_grad():
            self.width = self.network(torch.zeros(1, *self.images.shape, device=device)).shape[-1]

    def prepare(self, images: Tensor) -> Tensor:
        return (images - self._mean) / self._sd


def imported(package: OptionalPackage, module: str = "") -> Any:
    """An optional package's module. Raises ``PluginError`` where it is missing, or fails."""
    if package.missing:
        raise PluginError(f"backbone {package.name}: {package.missing}")
    try:
        return import_module(module or package.name)
    except Exception as error:
        raise PluginError(
            f"backbone {package.name}: the package cannot be imported: {one_line(error)}; install "
            f"one that fits the torch that is here\n  {package.command}"
        ) from error


class Drawn:
    """Within, global random numbers are the context's, which both packages draw weights from."""

    def __init__(self, context: Context, name: str):
        self._seed = derive(context.seed, "backbone", name)

    def __enter__(self) -> None:
        self._fork = torch.random.fork_rng(devices=[])
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *error: Any) -> None:
        self._fork.__exit__(*error)


def read_weights(path: Path, who: str) -> dict[str, Tensor]:
    """The tensors of a file, by name; nothing in it is executed. Raises ``DataError``."""
    if not path.is_file():
        raise DataError(f"{who}: {path} is missing")
    if path.suffix == ".safetensors":
        return load_tensors(path)[0]
    try:
        found = read_saved(path)
    except DataError as error:
        raise DataError(
            f"{who}: {error}; expected safetensors, or what torch.save made of a state_dict"
        ) from error
    for name in _WITHIN:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise DataError(f"{who}: {path} holds no state_dict: expected tensors by their names")
    return {str(name).removeprefix("module."): value for name, value in found.items()}


def fill(network: nn.Module, path: Path, heads: tuple[str, ...], who: str) -> None:
    """Weights of a file in a network without its classifier, whose tensors ``heads`` begin."""
    given = read_weights(path, who)
    body = {
        name: value
        for name, value in given.items()
        if not any(name.startswith(f"{head}.") for head in heads)
    }
    fit(network, body, f"{who}: {path}", "these are weights of another network: name that")
