"""Features of images by a backbone: phi(x) for every image, in blocks, on the backbone's device.

Symbols: n images of c channels, p features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.cached_arrays import cached_array
from metaforge.components import Context
from metaforge.contracts import Backbone
from metaforge.discovery import source_hash
from metaforge.errors import DataError, PluginError
from metaforge.image_files import ImageForm
from metaforge.preprocess import Preprocess
from metaforge.storage import DiskRows
from metaforge.tasks import View

if TYPE_CHECKING:
    from metaforge.image_options import FeatureOptions

#: Pixels of a block, channels not counted: on a CPU 128 images of 28 x 28, whose activations stay
#: in its caches, elsewhere 2048.
_PIXELS_CPU, _PIXELS = 128 * 28 * 28, 2048 * 28 * 28
#: Grey of red, green and blue (ITU-R 601-2), as Pillow has it.
_LUMA = (0.299, 0.587, 0.114)
#: Part of a cached file's name: raised when the same images come to other features.
_MAKING = 1


class Views(NamedTuple):
    """What a ``PooledTasks`` of images takes: what the inner algorithm sees (``x``) with the factor
    that takes it to [0, 1], and what kernels see, if that is something else; and, for each of the
    two, what was done to a raw image."""

    x: Tensor | DiskRows
    features: Tensor | None
    scale: float | None
    preprocess: dict[View, Preprocess | None]


def views(
    images: Tensor | DiskRows,
    digest: str,
    backbone: Backbone | None,
    options: FeatureOptions,
    context: Context,
) -> Views:
    """Bytes [n, c, h, w], and phi of them where there is a backbone, as the options ask for them.

    Raises ``DataError`` as ``features_of`` does.
    """
    sample = tuple(images.shape[1:])
    form = ImageForm(*sample) if sample[0] in (1, 3) else None
    raw = Preprocess(sample, form)
    if backbone is None:
        return Views(images, None, 1 / 255, {"input": raw})
    features = features_of(images, digest, backbone, context)
    if options.normalize == "l2":
        features = F.normalize(features, dim=-1)
    assert options.backbone is not None
    chosen = options.backbone.model_dump(mode="json")
    width = (backbone.width,)
    made = Preprocess(width, form, chosen, backbone.fingerprint, options.normalize)
    if options.sees_images:
        return Views(images, features, 1 / 255, {"input": raw, "features": made})
    return Views(features, None, None, {"input": made})


def features_of(
    images: Tensor | DiskRows, digest: str, backbone: Backbone, context: Context
) -> Tensor:
    """[n, p] float32, on the CPU: phi of bytes [n, c, h, w], from the cache or computed now.

    ``digest`` names the images; the features are kept under it and all that makes them. Raises
    ``DataError`` for images that the backbone cannot take, and for features that are not finite.
    """

    def compute() -> np.ndarray:
        with context.progress("computing features", len(images)) as advance:
            found = []
            for block in feature_blocks(rows_of(images), len(images), backbone, context.device):
                found.append(block)
                advance(len(block))
        return torch.cat(found).numpy()

    place = "cpu" if context.device == "cpu" else context.device.partition(":")[0]
    key = hashlib.blake2b(repr((digest, identity(backbone), place)).encode(), digest_size=16)
    path = context.cache_dir / "features" / f"{key.hexdigest()}.npz"
    shape = (len(images), backbone.width)
    values = torch.from_numpy(cached_array(path, shape, compute, context.report))
    refuse_not_finite(values)
    return values


def identity(backbone: Backbone) -> str:
    """What the features of an image depend on beside it: weights, form and code."""
    kind = type(backbone)
    try:
        source = source_hash(kind.__module__.partition(".")[0])
    except (PluginError, ValueError):  # made by hand, in no package
        source = ""
    parts = (_MAKING, f"{kind.__module__}.{kind.__qualname__}", source, backbone.fingerprint)
    return repr((*parts, backbone.images))


def feature_blocks(
    read: Callable[[int, int], Tensor],
    count: int,
    backbone: Backbone,
    device: str,
    first: int = 0,
    each: int | None = None,
) -> Iterator[Tensor]:
    """[k, p] on the CPU, of the images ``first`` to ``count`` in order, k at a time.

    ``read(start, stop)`` gives some images [k, c, h, w], as bytes or as floats in [0, 1]. A block
    begins at a multiple of ``each``, so that work taken up again has the bits of work in one go.
    """
    if count <= first:
        return
    each = each or block_size(read(0, 1).shape, backbone.images, device)
    for start in range(first, count, each):
        images = read(start, min(start + each, count))
        yield embed(backbone, images.to(device)).cpu()


def rows_of(images: Tensor | DiskRows) -> Callable[[int, int], Tensor]:
    """Some images by their places, wherever they are."""
    if isinstance(images, DiskRows):
        return lambda start, stop: torch.from_numpy(images.take(np.arange(start, stop)))
    return lambda start, stop: images[start:stop]


def block_size(shape: Sequence[int], form: ImageForm | None, device: str) -> int:
    """How many images [*, height, width] a forward pass takes on a device, of a backbone that
    wants the form: by the pixels that it sees."""
    height, width = shape[-2:] if form is None else (form.height, form.width)
    pixels = _PIXELS_CPU if device == "cpu" else _PIXELS
    return max(1, pixels // (height * width))


@torch.no_grad()
def embed(backbone: Backbone, images: Tensor) -> Tensor:
    """[n, p]: phi of images [n, c, h, w], bytes or floats in [0, 1], brought to the form that the
    backbone wants. Raises ``DataError`` where they cannot be, and ``PluginError`` for a backbone
    that gives something else than [n, p]."""
    found = backbone.features(in_form(images, backbone.images))
    if found.shape != (len(images), backbone.width):
        raise PluginError(
            f"backbone {type(backbone).__name__}: features of shape {list(found.shape)}, expected "
            f"{[len(images), backbone.width]}"
        )
    return found.float()


def in_form(images: Tensor, form: ImageForm | None) -> Tensor:
    """Floats [n, channels, height, width] in [0, 1] of images [n, c, h, w], bytes or such floats.

    Colours become grey by their luma, grey is repeated, sizes change by antialiased bilinear
    interpolation, sides apart, as ``image_files`` does. Raises ``DataError`` for other channels
    than 1 or 3.
    """
    values = images.to(torch.float32) / 255 if images.dtype == torch.uint8 else images.float()
    if form is None:
        return values
    if values.ndim != 4 or values.shape[1] not in (1, 3):
        raise DataError(
            f"images of shape {list(images.shape[1:])}: a backbone takes [1, height, width], grey, "
            "or [3, height, width], red, green and blue"
        )
    if values.shape[1] > form.channels:
        luma = torch.tensor(_LUMA, device=values.device).view(1, 3, 1, 1)
        values = (values * luma).sum(1, keepdim=True)
    elif values.shape[1] < form.channels:
        values = values.expand(-1, form.channels, -1, -1)
    if values.shape[2:] == (form.height, form.width):
        return values
    size = form.height, form.width
    return F.interpolate(values, size, mode="bilinear", align_corners=False, antialias=True)


def refuse_not_finite(features: Tensor) -> None:
    """``DataError`` for features [n, p] with NaN or infinite numbers."""
    bad = (~torch.isfinite(features).all(1)).sum().item()
    if bad:
        raise DataError(f"the backbone gives features that are not finite, of {bad} images")
