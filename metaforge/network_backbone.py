"""Backbones that are networks: features, fingerprint, and weights that are saved and read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from metaforge.contracts import Backbone
from metaforge.errors import DataError
from metaforge.image_files import ImageForm
from metaforge.records import load_tensors, save_tensors

#: Tensors that a message names.
_NAMED = 3


@runtime_checkable
class Trainable(Protocol):
    """A backbone that offers its module, and can write its weights.

    ``network`` maps what ``prepare`` makes of images ``[n, *x]``, in the form ``images``, to
    ``[n, width]``; ``features`` uses it in evaluation mode.
    """

    width: int
    fingerprint: str
    images: ImageForm | None
    network: nn.Module

    def prepare(self, images: Tensor) -> Tensor: ...

    def features(self, images: Tensor) -> Tensor: ...

    def save(self, path: Path, metadata: Any = None) -> None: ...


class NetworkBackbone(Backbone):
    """phi: images of the form ``images`` to features, by a network in evaluation mode, so that
    a feature depends on its own image alone.

    ``network`` is the module itself, [n, c, h, w] -> [n, width], of what ``prepare`` makes of
    images, for ``metaforge.pretraining``; a subclass sets it, with ``width`` and ``images``.
    ``made_by`` are the options, beside the weights, that make other features.
    """

    network: nn.Module
    made_by: str = ""

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Hex digest of the weights, whatever they came from, and of ``made_by``."""
        digest = hashlib.blake2b(digest_size=16)
        for name, value in self.network.state_dict().items():
            digest.update(f"{name} {tuple(value.shape)} ".encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        digest.update(self.made_by.encode())
        return digest.hexdigest()

    def prepare(self, images: Tensor) -> Tensor:
        """What the network takes, of images [n, c, h, w] in [0, 1]."""
        return images

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        self.network.eval()
        return self.network(self.prepare(images))

    def save(self, path: Path, metadata: Any = None) -> None:
        """Write the weights as safetensors, for the option ``weights``, with the images' form."""
        form = None if self.images is None else list(self.images.shape)
        save_tensors(path, self.network.state_dict(), {**(metadata or {}), "images": form})

    def _load(self, path: Path, who: str, advice: str) -> None:
        """Weights of a file that ``save`` wrote. Raises ``DataError`` for other tensors, and for
        weights that were trained on images of another form."""
        if not path.is_file():
            raise DataError(f"{who}: {path} is missing; `metaforge pretrain` makes weights")
        given, metadata = load_tensors(path)
        trained = (metadata or {}).get("images")
        if trained and self.images is not None and list(self.images.shape) != trained:
            raise DataError(
                f"{who}: {path} was trained on images {json.dumps(trained)} [channels, height, "
                f"width], and these options say {json.dumps(list(self.images.shape))}; {advice}"
            )
        fit(self.network, given, f"{who}: {path}", advice)


def fit(network: nn.Module, given: dict[str, Tensor], where: str, advice: str) -> None:
    """Put tensors in a network. Raises ``DataError`` where names or shapes are not its own."""
    expected = network.state_dict()
    shapes = {name: tuple(value.shape) for name, value in given.items()}
    wanted = {name: tuple(value.shape) for name, value in expected.items()}
    unlike = [key for key in {**wanted, **shapes} if shapes.get(key) != wanted.get(key)]
    if unlike:
        told = [
            f"{name} is {shapes.get(name, 'missing')}, expected {wanted.get(name, 'nothing')}"
            for name in unlike[:_NAMED]
        ]
        more = f"; and {len(unlike) - _NAMED} more" if len(unlike) > _NAMED else ""
        raise DataError(f"{where}: {'; '.join(told)}{more}; {advice}")
    network.load_state_dict(given)
