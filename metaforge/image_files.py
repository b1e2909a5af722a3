"""Image files read as bytes of one form, by Pillow. Torch-free.

How files become alike:

* What is transparent is laid on white.
* Palettes, CMYK and YCbCr become RGB; 16-bit grey is scaled to 8 bits (v / 257, rounded); of
  16-bit colour the high byte is taken. One bit a pixel becomes 0 and 255.
* The rotation that EXIF tells is applied. Of an animation the first frame is taken.
* Grey becomes RGB by three equal channels, RGB grey by the luma of ITU-R 601-2.
* Other sizes are resized, whatever their aspect, by Pillow's bilinear filter, which averages over
  all pixels where it shrinks.
* Refused are floating-point pixels, whose range no file tells, whole numbers beyond 16 bits,
  images of more than ``MOST_PIXELS``, and files that end early.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_form import MOST_PIXELS, ImageForm
from metaforge.image_listing import Listing, list_images
from metaforge.suggest import told

__all__ = ["ImageForm", "Listing", "common_form", "image_blocks", "list_images", "read_images"]

#: Decoders that are asked, where Pillow has them: none that starts another program. The modules of
#: each, as all of Pillow's take a while to import.
_DECODERS = {
    "PNG": "Png",
    "JPEG": "Jpeg",
    "MPO": "Mpo",
    "GIF": "Gif",
    "BMP": "Bmp",
    "DIB": "Bmp",
    "TIFF": "Tiff",
    "WEBP": "WebP",
    "PPM": "Ppm",
    "JPEG2000": "Jpeg2K",
    "AVIF": "Avif",
}
#: Images of more pixels are read one at a time, for each may take some hundred megabytes.
_LARGE, _ALONE = 10**7, threading.Lock()
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"})
_WIDE = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
#: EXIF's tag of the orientation, and those of its values that exchange height and width.
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
#: Files a thread reads at a time, and faults that a message lists.
_EACH, _TOLD = 32, 200

T = TypeVar("T")


class Fault(NamedTuple):
    """Why a file is no image that can be read."""

    file: str
    why: str

    def __str__(self) -> str:
        return f"{told(self.file)}: {self.why}"


def read_images(
    root: Path, files: Sequence[Path | str], form: ImageForm | None, context: Context
) -> np.ndarray:
    """The images of files (their paths relative to ``root``), uint8 [n, c, h, w], in their order.

    Without a form they are of ``common_form``. Raises one ``DataError`` that lists every file
    that cannot be read (after the first 200 they are counted).
    """
    if form is None:
        form = common_form(root, files, context)
    images = np.empty((len(files), *form.shape), np.uint8)
    first = 0
    for block in image_blocks(root, files, form, context):
        images[first : first + len(block)] = block
        first += len(block)
    return images


def image_blocks(
    root: Path, files: Sequence[Path | str], form: ImageForm, context: Context
) -> Iterator[np.ndarray]:
    """``read_images`` some at a time, uint8 [k, c, h, w], for those that memory does not hold.

    After a fault the other files are still looked at, and it raises at the end.
    """
    faults: list[Fault] = []
    reads = _each(root, files, lambda path: _decoded(path, form), "reading images", context)
    for found in reads:
        faults += [fault for fault in found if isinstance(fault, Fault)]
        if not faults:
            yield np.stack([image for image in found if isinstance(image, np.ndarray)])
    _refuse(root, faults)


class Header(NamedTuple):
    """What a file tells before its pixels are read, turned as EXIF says."""

    height: int
    width: int
    grey: bool


def headers(root: Path, files: Sequence[Path | str], context: Context) -> list[Header | Fault]:
    """The header of each file, or why it has none that can be used."""
    reads = _each(root, files, _header, "looking at images", context)
    return [header for found in reads for header in found]


def common_form(root: Path, files: Sequence[Path | str], context: Context) -> ImageForm:
    """``form_of_headers`` of the files."""
    return form_of_headers(root, headers(root, files, context))


def form_of_headers(root: Path, found: Sequence[Header | Fault]) -> ImageForm:
    """The most common size (the larger of two), in RGB if any image has colours.

    Files that cannot be read are left out, unless none can: then ``DataError`` lists them.
    """
    good = [header for header in found if isinstance(header, Header)]
    if not good:
        _refuse(root, [fault for fault in found if isinstance(fault, Fault)])
        raise DataError(f"{root}: no images to tell their size from")
    sizes = Counter((header.height, header.width) for header in good)
    height, width = max(sizes, key=lambda size: (sizes[size], size))
    return ImageForm(1 if all(header.grey for header in good) else 3, height, width)


def unreadable(root: Path, faults: Sequence[Fault]) -> str:
    """All faults, a line each; nothing if there are none."""
    if not faults:
        return ""
    lines = [f"{root}: {len(faults):,} images cannot be read; mend them, or take them out:"]
    lines += [f"  {fault}" for fault in faults[:_TOLD]]
    lines += [f"  and {len(faults) - _TOLD:,} more"] if len(faults) > _TOLD else []
    return "\n".join(lines)


def _refuse(root: Path, faults: Sequence[Fault]) -> None:
    if message := unreadable(root, faults):
        raise DataError(message)


def _each(
    root: Path,
    files: Sequence[Path | str],
    read: Callable[[Path], T | str],
    name: str,
    context: Context,
) -> Iterator[list[T | Fault]]:
    """What ``read`` makes of the files, some at a time and in their order; a text is a fault.

    Pillow decodes without Python's lock, so threads share the files. What it warns of is of no
    use to the user, who is told of faults alone.
    """

    def some(first: int) -> list[T | Fault]:
        found: list[T | Fault] = []
        for file in files[first : first + _EACH]:
            made = read(root / file)
            found.append(Fault(str(file), made) if isinstance(made, str) else made)
        return found

    _formats()
    threads = min(8, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(threads)
    try:
        with warnings.catch_warnings(), context.progress(name, len(files)) as advance:
            warnings.filterwarnings("ignore", module="PIL")
            waiting: deque[Future[list[T | Fault]]] = deque()
            starts = iter(range(0, len(files), _EACH))
            while True:
                room = islice(starts, 4 * threads - len(waiting))
                waiting.extend(pool.submit(some, first) for first in room)
                if not waiting:
                    return
                found = waiting.popleft().result()
                advance(len(found))
                yield found
    finally:  # who stops does not wait for what is only begun
        pool.shutdown(cancel_futures=True)


@cache
def _formats() -> list[str]:
    """The formats that this Pillow reads, of those that are asked for."""
    for module in _DECODERS.values():
        with suppress(ImportError):  # AVIF came later
            import_module(f"PIL.{module}ImagePlugin")
    return [name for name in _DECODERS if name in Image.OPEN]


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The image of a file, whose pixels are not read yet. Raises ``_Unfit``."""
    with path.open("rb") as file, Image.open(file, formats=_formats()) as image:
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise _Unfit(
                f"claims {height:,} x {width:,} pixels; at most {MOST_PIXELS:,} are read: shrink it"
            )
        with _ALONE if width * height > _LARGE else nullcontext():
            yield image


class _Unfit(Exception):
    """The pixels of a whole file are none that can be used."""


def _fault(error: Exception) -> str:
    """In words what came of reading a file: a decoder may raise anything on damaged bytes."""
    if isinstance(error, _Unfit):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "is no image of a known format, or its start is damaged"
    if isinstance(error, Image.DecompressionBombError):
        return f"claims more than {MOST_PIXELS:,} pixels, which are not read: shrink it"
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot be opened ({error.strerror})"
    return f"is damaged ({' '.join(str(error).split()) or type(error).__name__})"


def _header(path: Path) -> Header | str:
    try:
        with _opened(path) as image:
            width, height = image.size
            # of PNG, Pillow would read all pixels in search of it
            asked = image.format != "PNG" or "exif" in image.info
            if asked and image.getexif().get(_ORIENTATION) in _TURNED:
                height, width = width, height
            return Header(height, width, image.mode in _GREY)
    except Exception as error:
        return _fault(error)


def _decoded(path: Path, form: ImageForm) -> np.ndarray | str:
    """uint8 [c, h, w], or why there is none."""
    try:
        with _opened(path) as image:
            return formed(image, form)
    except Exception as error:
        return _fault(error)


def formed(image: Image.Image, form: ImageForm) -> np.ndarray:
    """uint8 [c, h, w] of an opened image. Raises ``_Unfit``, and what Pillow does."""
    mode = "L" if form.channels == 1 else "RGB"
    image.load()
    flat = _eight_bits(ImageOps.exif_transpose(image))
    if flat.mode in _ALPHA or "transparency" in flat.info:
        over = flat.convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
    if flat.mode == "P":  # whose colours are known to RGB alone
        flat = flat.convert("RGB")
    try:
        flat = flat.convert(mode)
    except ValueError:
        raise _Unfit(f"has pixels of the kind {flat.mode}; save it as RGB or grey") from None
    if flat.size != (form.width, form.height):
        flat = flat.resize((form.width, form.height), Image.Resampling.BILINEAR)
    pixels = np.asarray(flat)
    return pixels[None] if form.channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as 8 bits; other images as they are."""
    if image.mode == "F":
        raise _Unfit("has floating-point pixels, whose range no file tells; save 8 or 16 bits")
    if image.mode not in _WIDE:
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise _Unfit("has whole numbers beyond 16 bits; save 8 or 16 bits")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))
